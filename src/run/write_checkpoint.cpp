#include "run/write_checkpoint.h"

#include <optional>

namespace trainer {

Checkpoint write_checkpoint(const RunState& state, const TensorsElsewhere& elsewhere,
                            const Artefacts& artefacts, const std::filesystem::path& output_dir,
                            const Ranks& ranks) {
  const int64_t step = state.trainer_state.global_step;
  std::optional<CheckpointWriter> writer;
  const auto on_all = [&](const std::function<std::string()>& work) {
    return run_on_all_ranks(ranks, work, Channel::checkpoints);
  };
  const std::vector<std::string> notes = on_all([&] {
    if (!ranks.is_first()) return std::string();
    writer.emplace(output_dir, step);
    state.write(artefacts, writer->directory(), elsewhere);
    return writer->directory().string();
  });
  if (!ranks.alone()) {
    on_all([&] {
      if (!ranks.is_first()) state.fill(notes.front());
      return std::string();
    });
  }
  Checkpoint written{checkpoint_path(output_dir, step), step, {}};
  on_all([&] {
    if (ranks.is_first()) written = writer->commit();
    return std::string();
  });
  return written;
}

}  // namespace trainer
