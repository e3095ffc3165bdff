#include "ui/room_for_models.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"
#include "trainer/formats/checkpoint.h"
#include "trainer/text/chat_template.h"

#include "ui/own_program.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMostRuns = 8;  // that train on one machine at once

int64_t bytes_of_weights(const fs::path& directory) {
  int64_t bytes = 0;
  std::error_code failed;
  for (auto at = fs::directory_iterator(directory, failed); !failed && at != fs::directory_iterator();
       at.increment(failed)) {
    std::error_code ignored;
    if (at->path().extension() != ".safetensors" || at->path().filename().string().starts_with("optimizer"))
      continue;
    const auto size = at->file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

bool has_model(const fs::path& directory) {
  std::error_code ignored;
  return std::ranges::any_of(
      std::initializer_list<const char*>{"adapter_model.safetensors", "model.safetensors",
                                         "model.safetensors.index.json"},
      [&](const char* name) { return fs::exists(directory / name, ignored); });
}

bool converses(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return true;  // a name of the hub: its program says more
  try {
    return load_chat_template(directory).has_value();
  } catch (const Error&) {
    return true;  // a damaged template: the same
  }
}

// The folder that a run was started in, whose paths its configuration has; "" if that does not say.
fs::path started_in(const fs::path& run, const fs::path& output) {
  if (output.empty() || output.is_absolute()) return "";
  fs::path folder = fs::absolute(run / "").lexically_normal().parent_path();
  for (fs::path rest = (output / "").lexically_normal().parent_path(); !rest.empty();
       rest = rest.parent_path()) {
    if (folder.filename() != rest.filename()) return "";  // it was moved
    folder = folder.parent_path();
  }
  return folder;
}

std::string base_of(const fs::path& run) {
  try {
    const Config config = load_config((run / "config.yaml").string(), {});
    const fs::path folder = started_in(run, config.output_dir), there = folder / config.model.path;
    std::error_code ignored;
    return !folder.empty() && fs::is_directory(there, ignored) ? there.string() : config.model.path;
  } catch (const Error&) {
    return "";
  }
}

// MemAvailable of this machine.
int64_t free_main_memory() {
  std::ifstream facts("/proc/meminfo");
  for (std::string line; std::getline(facts, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemAvailable:") return kilobytes * 1024;
  }
  return -1;
}

// The most free memory that a GPU has; -1 if there is none.
int64_t free_gpu_memory() {
  OwnProgram doctor({"doctor", "--json"});
  doctor.end_input();
  const Json said = Json::parse(doctor.read_all(), nullptr, /*allow_exceptions=*/false);
  int64_t most = -1;
  if (!said.is_object() || !said.contains("checks")) return most;
  for (const Json& check : said["checks"]) {
    const auto uuid = check.find("uuid"), free = check.find("free");
    if (uuid != check.end() && free != check.end() && free->is_number())
      most = std::max(most, free->get<int64_t>());
  }
  return most;
}

double last_of(const Json& run, const char* series) {
  const Json& all = run["train"]["series"];
  if (!all.is_object() || !all.contains(series) || all[series]["mean"].empty()) return 0;
  const Json& last = all[series]["mean"].back();
  return last.is_number() ? last.get<double>() : 0;
}

// A run that trains here, and the memory that its plan gives it and that it does not have yet.
struct Training {
  std::string name;
  bool on_gpu = false;
  int64_t growth = 0;
};

Training training_of(LiveRuns& live, const KnownRun& known) {
  const Json run = live.run(known);
  Training training{known.name};
  if (run["environment"].is_object() && run["environment"].contains("starts")) {
    const Json& starts = run["environment"]["starts"];
    const std::string device = starts.is_array() && !starts.empty() && starts.back().is_object() &&
                                       starts.back().contains("device") && starts.back()["device"].is_string()
                                   ? starts.back()["device"].get<std::string>()
                                   : "cpu";
    training.on_gpu = !device.starts_with("cpu");
  }
  const auto planned = [&](const char* key) {
    const Json& plan = run["memory_plan"];
    return plan.is_object() && plan.contains(key) && plan[key].is_number() ? plan[key].get<double>() : 0;
  };
  const double most = std::max({planned("planned_peak"), planned("limit"), last_of(run, "memory_peak")});
  const double has = training.on_gpu ? last_of(run, "memory_reserved") : last_of(run, "memory_resident");
  training.growth = static_cast<int64_t>(std::max(0.0, most - has));
  return training;
}

}  // namespace

ModelsOfRun models_of(const fs::path& run) {
  ModelsOfRun models;
  if (has_model(run)) {
    models.result = run;
  } else {
    for (const int64_t step : checkpoint_steps(run)) {
      if (const fs::path path = checkpoint_path(run, step); has_model(path)) models.result = path;
    }
  }
  models.base = base_of(run);
  if (models.result.empty()) return models;
  std::error_code ignored;
  models.base_bytes = bytes_of_weights(models.base);
  models.result_bytes = bytes_of_weights(models.result);
  if (fs::exists(models.result / "adapter_config.json", ignored)) models.result_bytes += models.base_bytes;
  models.result_converses = converses(models.result);
  models.base_converses = converses(models.base);
  return models;
}

Room room_beside_runs(RunIndex& index, LiveRuns& live, const std::string& device) {
  std::vector<Training> trainings;
  for (const auto& [run, status] : index.running(kMostRuns)) {
    try {
      trainings.push_back(training_of(live, run));
    } catch (const Error&) {  // it was deleted
    }
  }
  const bool gpu_is_used = std::ranges::any_of(trainings, &Training::on_gpu);
  Room room;
  room.device = device;
  if (device == "auto" && gpu_is_used) {
    room.device = "cpu";
    room.note = "A run trains on the GPU, so this is on the CPU.";
  }
  std::error_code ignored;
  const bool has_gpu = fs::exists("/dev/nvidiactl", ignored);
  const bool on_gpu = room.on_gpu = room.device == "cuda" || (room.device == "auto" && has_gpu);
  if (on_gpu && !gpu_is_used) return room;  // it has the GPU for itself, and says what does not fit
  room.free = on_gpu ? free_gpu_memory() : free_main_memory();
  if (room.free < 0) return room;
  std::vector<std::string> names;
  for (const Training& training : trainings) {
    if (training.on_gpu != on_gpu) continue;
    room.free = std::max<int64_t>(0, room.free - training.growth);  // below 0 would say that it is not known
    names.push_back(training.name);
  }
  if (!names.empty() && room.note.empty())
    room.note = concat(join(names), names.size() == 1 ? " trains" : " train",
                       on_gpu ? " on the GPU" : " on the CPU", " at the same time: both are slower.");
  return room;
}

void require_room(const Room& room, int64_t result_bytes, int64_t base_bytes) {
  // Keys, values and what a step computes: a tenth, and a program's own 300 MB.
  const int64_t models = result_bytes + base_bytes;
  const int64_t needed = models + models / 10 + (base_bytes > 0 ? 600'000'000 : 300'000'000);
  if (room.free < 0 || needed <= room.free) return;
  throw OutOfMemoryError(
      concat("There is no room to chat: ", base_bytes > 0 ? "both models need" : "the model needs", " about ",
             bytes_string(needed), ", and ", bytes_string(room.free), " are free on the ",
             room.on_gpu ? "GPU" : "CPU", " beside what runs there, by the plans of the runs. ",
             base_bytes > 0 ? "Leave out the base model, " : "", base_bytes > 0 ? "or " : "",
             !room.on_gpu ? "wait until a run ends." : "choose the CPU, or wait until a run ends."));
}

}  // namespace trainer::ui
