// Stand-in: see README.md.
#pragma once
