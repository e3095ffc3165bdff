// Waiting that Ctrl-C ends cleanly.
#pragma once

namespace trainer {

// Sleeps for this time. Returns false if SIGINT or SIGTERM arrived, which then has no other effect.
// Afterwards the process handles (or ignores) these signals as before. Call from one thread at a time.
bool interruptible_sleep(double seconds);

}  // namespace trainer
