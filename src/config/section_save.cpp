#include "config/declare.h"

namespace trainer::config {

Section save_section() {
  using S = SaveConfig;
  return section(
      "save",
      "Checkpoints during the run, from which it can resume. The result is saved at the end in any case.",
      {key(&S::strategy, "strategy", OnResume::may_change,
           "When to save a checkpoint. Every save.steps updates, after every epoch, or no: none. With steps "
           "and epoch there is also one after the last step, so that a run can be made longer."),
       key(&S::steps, "steps", OnResume::may_change, "Updates between checkpoints. For strategy: steps.")
           .at_least(1)
           .at_most(1e10)
           .in("steps")
           .contradicts("save.strategy", "steps"),
       key(&S::minutes, "minutes", OnResume::may_change,
           "Also save when the last checkpoint is this old. Works with any strategy. 0: off.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes"),
       key(&S::total_limit, "total_limit", OnResume::may_change,
           "Checkpoints to keep; older ones are deleted. 0: keep all. The best checkpoint counts and is "
           "kept; so are the newest complete one, and the newest after which a step went well. With 2 these "
           "are "
           "the newest and the best one, or the two newest.")
           .at_least(0)
           .at_most(1e6),
       key(&S::result_dtype, "result_dtype", OnResume::may_change,
           "Type of the saved result. auto: each tensor in the type that it came in, from the files of the "
           "model or of lora.adapter; new ones as they were trained. Checkpoints keep the type of the "
           "training."),
       key(&S::weights_only, "weights_only", OnResume::may_change,
           "Leave out what resuming needs: optimizer state and position. Checkpoints are smaller, but a run "
           "that is killed starts from its beginning.")
           .idle({.states = {{.key = "save.strategy", .values = {"no"}},
                             {.key = "save.minutes", .values = {"0"}},
                             {.key = "training.load_best_model_at_end", .values = {"false"}}},
                  .in_help = true}),
       key(&S::async, "async", OnResume::may_change,
           "Write checkpoints in the background. Training waits only for a copy to main memory; if there is "
           "no room for a copy, or something is offloaded, it waits until everything is written.")});
}

Section recovery_section() {
  using R = RecoveryConfig;
  return section(
      "recovery",
      "What happens when a step runs out of memory: it is repeated in smaller micro-batches, with the same "
      "result.",
      {key(&R::min_batch_size, "min_batch_size", OnResume::may_change,
           "Micro-batches of this many samples are not split further.")
           .at_least(1)
           .at_most(1e6)
           .in("samples")
           .idle_with("recovery.max_retries", {"0"}),
       key(&R::max_retries, "max_retries", OnResume::may_change,
           "How often one step is retried. 0: never; the run ends with exit code 5.")
           .at_least(0)
           .at_most(1e6),
       key(&R::grow_after, "grow_after", OnResume::may_change,
           "Steps without running out of memory after which larger micro-batches are tried again, and after "
           "four times as many without recompute. 0: never.")
           .at_least(0)
           .at_most(1e10)
           .in("steps")
           .idle_with("recovery.max_retries", {"0"}),
       key(&R::try_other_gpus, "try_other_gpus", OnResume::may_change,
           "If nothing helps on one GPU, continue on the other GPU with the most free memory. Nothing is "
           "lost.")
           .idle_with("device", {"cpu"}),
       key(&R::cpu_fallback, "cpu_fallback", OnResume::may_change,
           "If nothing helps on a GPU, continue on the CPU. Much slower, but nothing is lost.")
           .idle_with("device", {"cpu"})});
}

Section observe_section() {
  using O = ObserveConfig;
  return section(
      "observe", "What a run writes for people who watch it, besides metrics.jsonl (docs/observing.md).",
      {key(&O::tensorboard, "tensorboard", OnResume::may_change,
           "Write event files for TensorBoard to OUT/tensorboard. Metrics, generated answers and the "
           "configuration."),
       key(&O::report_to, "report_to", OnResume::may_change,
           "Services that get the metrics while the run goes on. A list of wandb, mlflow and trackio. A "
           "helper "
           "process feeds each through its Python package; no service makes a run slower, or ends it.")
           .matching("wandb|mlflow|trackio", "wandb, mlflow or trackio (TensorBoard is observe.tensorboard)"),
       key(&O::report_minutes, "report_minutes", OnResume::may_change,
           "Write the page OUT/report.html anew when it is this old. Also after evaluations and at the end. "
           "0: "
           "no page.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes")});
}

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
           "one.")
           .idle_with("notify.webhook", {""}),
       key(&N::command, "command", OnResume::may_change,
           "Command that is run by /bin/sh for every event. It gets the event as JSON on its standard input, "
           "and TRAINER_EVENT, TRAINER_TEXT and others in its environment. It is ended after 30 seconds. "
           "Empty: none."),
       key(&N::events, "events", OnResume::may_change,
           "Events that give a message. A list of start (after the first step), progress, best (an "
           "evaluation better than all before), recovery (from lack of memory), warning, failed, stopped (by "
           "a signal or training.max_hours) and finished.")
           .matching("start|progress|best|recovery|warning|failed|stopped|finished",
                     "start, progress, best, recovery, warning, failed, stopped or finished")
           .idle({.states = {{.key = "notify.webhook", .values = {""}},
                             {.key = "notify.command", .values = {""}}},
                  .in_help = true}),
       key(&N::every_minutes, "every_minutes", OnResume::may_change,
           "Time between two messages about the progress. 0: none.")
           .at_least(0)
           .at_most(1e7)
           .in("minutes")
           .idle({.states = {{.key = "notify.webhook", .values = {""}},
                             {.key = "notify.command", .values = {""}}},
                  .in_help = true})});
}

}  // namespace trainer::config
