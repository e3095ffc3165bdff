// An output directory with checkpoints like those that a run writes.
#pragma once

#include <fstream>
#include <vector>

#include "trainer/base/files.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/formats/run_position.h"

#include "formats/optimizer_state.h"
#include "formats/trainer_state.h"
#include "support/temporary_directory.h"

namespace trainer::test {

// Everything that belongs to a save. The bytes tell the step.
inline void fill_checkpoint(const std::filesystem::path& directory, int64_t step) {
  std::string bytes(64, static_cast<char>(step));
  const TensorView view{Dtype::f32, {4, 4}, reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
  write_safetensors(directory / "adapter_model.safetensors", {{"w", view}});
  const TensorSources sources = sources_of({{"exp_avg", view}, {"exp_avg_sq", view}});
  write_optimizer_state(directory, "adamw", step, {{"w", sources}});
  TrainerState state;
  state.global_step = step;
  write_trainer_state(directory, state);
  RunPosition position;
  position.step = step;
  position.dataset_size = 8;
  write_position(directory, position);
  write_atomically(directory / "empty", "");
  make_directories(directory / "additional_chat_templates");
  write_atomically(directory / "additional_chat_templates/tool_use.jinja", "{{ tools }}");
}

inline Checkpoint save_checkpoint(const std::filesystem::path& output_dir, int64_t step) {
  CheckpointWriter writer(output_dir, step);
  fill_checkpoint(writer.directory(), step);
  return writer.commit();
}

// The newest whole one, and what was said of those before it.
struct Found {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> skipped;

  int64_t step() const { return checkpoint ? checkpoint->step : -1; }
};
inline Found find_newest(const std::filesystem::path& output_dir,
                         const std::vector<std::string>& needed = {}) {
  Found found;
  found.checkpoint = newest_complete_checkpoint(
      output_dir, needed, [&](const std::string& line) { found.skipped.push_back(line); });
  return found;
}

inline void overwrite(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace trainer::test
