#include "config/declare.h"

namespace trainer::config {

Section top_level() {
  return section(
      "", "At the top level of the file, outside any section.",
      {key(&Config::device, "device", OnResume::may_change,
           "Device to train on. auto, cpu, cuda or cuda:N. auto and cuda take the GPU with the most free "
           "memory; auto takes the CPU if there is no GPU. The section gpu has more settings.")
           .matching("^(auto|cpu|cuda(:[0-9]{1,3})?)$", "auto, cpu, cuda or cuda:N"),
       key(&Config::seed, "seed", OnResume::fixes_run,
           "Seed of all randomness: order of samples, dropout, new weights.")
           .at_least(0),
       key(&Config::output_dir, "output_dir", OnResume::may_change,
           "Directory for the result, checkpoints, metrics.jsonl and log.txt.")
           .path()
           .matching("^(.|\\n)+$", "a directory"),
       key(&Config::overwrite_output_dir, "overwrite_output_dir", OnResume::may_change,
           "Start from the beginning in an output_dir that has results already; they are removed first."),
       key(&Config::resume, "resume", OnResume::may_change,
           "Where a run resumes. auto: at the newest complete checkpoint in output_dir, if the same run was "
           "stopped there. never: nowhere; an output_dir with results is refused. Or the directory of a "
           "checkpoint: if it is in output_dir, every start goes back to it; if it is elsewhere, a new run "
           "begins from it.")
           .path()
           .matching("^(.|\\n)+$", "auto, never, or the directory of a checkpoint")
           .such_as({"auto", "never"}),
       key(&Config::resume_changed, "resume_changed", OnResume::may_change,
           "Keys that may differ from the run that is resumed. A key or a list of keys: [data.train, seed]. "
           "Without this, different data, another seed and the like are an error that names the key.")
           .idle_with("resume", {"never"})});
}

}  // namespace trainer::config
