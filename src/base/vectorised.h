// How loops over numbers are compiled.
#pragma once

// Always inlined into such a loop, and compiled with it.
#define TRAINER_INLINE inline __attribute__((always_inline))
// Compiles a function for several kinds of processor; the program chooses one when it starts.
#define TRAINER_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
