// The two ways in which events are delivered.
#pragma once

#include <string>

#include "trainer/config/config.h"

#include "notify/outbox.h"

namespace trainer {

// Posts events to the address. Answers 429 and 5xx, and a server that does not answer within ten seconds, are
// tried again later. Problems name the host and never the rest of the address.
Deliver webhook_delivery(const std::string& address, NotifyFormat format);

// Runs the command by /bin/sh for each event, which is on its standard input as JSON. Its environment is that
// of this process with TRAINER_EVENT, TRAINER_RUN, TRAINER_TEXT, TRAINER_OUTPUT_DIR, TRAINER_STEP,
// TRAINER_TOTAL_STEPS and TRAINER_EXIT_CODE (those that the event has). What it prints is not kept, and it
// gets no other file of this process. If it takes longer than `seconds`, it and its children are ended.
Deliver command_delivery(const std::string& command, double seconds = 30);

}  // namespace trainer
