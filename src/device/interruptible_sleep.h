// Waiting that Ctrl-C ends in good order.
#pragma once

namespace trainer {

// Sleeps so long; false when SIGINT or SIGTERM came, which then have no other effect. What the process did
// with these signals before, also ignoring them, it does again afterwards. From one thread at a time.
bool interruptible_sleep(double seconds);

}  // namespace trainer
