#include "config/declare.h"
#include "config/sections.h"

namespace trainer::config {

Section notify_section() {
  using N = NotifyConfig;
  return section(
      "notify",
      "Messages about the run to a chat channel, a server or a program of yours (docs/observing.md). No "
      "server makes a run slower, or ends it.",
      {key(&N::webhook, "webhook", OnResume::may_change,
           "Address that messages are posted to, https://..., or the name of an environment variable that "
           "holds it. The address is a secret: no file or message of the run shows more of it than the host. "
           "A variable also keeps it out of the list of processes. Empty: none."),
       key(&N::format, "format", OnResume::may_change,
           "Form of the messages. discord, slack: as their webhooks take them. json: the event with all its "
           "numbers. text: the text alone, as ntfy takes it. auto: found from the host; json if it is "
           "another "
           "one."),
       key(&N::command, "command", OnResume::may_change,
           "Command that is run by /bin/sh for every event. It gets the event as JSON on its standard input, "
           "and TRAINER_EVENT, TRAINER_TEXT and others in its environment. It is ended after 30 seconds. "
           "Empty: none."),
       key(&N::events, "events", OnResume::may_change,
           "Events that give a message. A list of start (after the first step), progress, best (an "
           "evaluation better than all before), recovery (from lack of memory), warning, failed, stopped (by "
           "a signal or training.max_hours) and finished.")
           .matching("start|progress|best|recovery|warning|failed|stopped|finished",
                     "start, progress, best, recovery, warning, failed, stopped or finished"),
       key(&N::every_minutes, "every_minutes", OnResume::may_change,
           "Time between two messages about the progress. 0: none.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes")});
}

}  // namespace trainer::config
