#include "trainer/base/rank_place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

namespace trainer {
namespace {

// An empty variable is one that is not set.
std::optional<std::string> variable_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> number_of(const char* name) {
  const std::optional<std::string> text = variable_of(name);
  if (!text) return std::nullopt;
  const std::optional<int64_t> value = number_in(*text);
  if (!value) throw ConfigError(concat("the variable ", name, " is '", *text, "', which is no number"));
  return value;
}

// `because`: the variable that makes this one needed, with its value.
std::string needed_text(const char* name, const std::string& because) {
  if (const std::optional<std::string> value = variable_of(name)) return *value;
  throw ConfigError(
      concat("the variable ", because, ", but ", name,
             " is not set; torchrun and srun set all that a process needs, and so must any other "
             "launcher (to start one process alone, unset ",
             because.substr(0, because.find(' ')), ")"));
}

int64_t needed_number(const char* name, const std::string& because) {
  needed_text(name, because);
  return *number_of(name);
}

int port_of(const char* name, int64_t port) {
  if (port < 1 || port > 65535)
    throw ConfigError(concat("the variable ", name, " is ", port, "; a port is from 1 to 65535"));
  return static_cast<int>(port);
}

void require_below(const char* name, int64_t value, const char* limit_name, int64_t limit) {
  if (value < limit) return;
  throw ConfigError(concat("the variables contradict each other: ", name, " is ", value, ", ", limit_name,
                           " is ", limit, "; ", name, " counts from 0"));
}

std::string attempt_of(const char* name) { return std::to_string(number_of(name).value_or(0)); }

RankPlace place_of_variables(int64_t count) {
  RankPlace place;
  place.launcher = variable_of(kLauncherVariable).value_or("torchrun");
  place.count = count;
  const std::string because = concat("WORLD_SIZE is ", count);
  if (count == 0) throw ConfigError("the variable WORLD_SIZE is 0; it counts the processes of the run");
  place.rank = needed_number("RANK", because);
  require_below("RANK", place.rank, "WORLD_SIZE", count);
  if (count == 1) return place;
  place.local_rank = needed_number("LOCAL_RANK", because);
  place.local_count = needed_number("LOCAL_WORLD_SIZE", because);
  require_below("LOCAL_RANK", place.local_rank, "LOCAL_WORLD_SIZE", place.local_count);
  require_below("LOCAL_RANK", place.local_rank, "WORLD_SIZE", count);
  if (place.local_count > count) {
    throw ConfigError(concat("the variables contradict each other: LOCAL_WORLD_SIZE is ", place.local_count,
                             ", WORLD_SIZE is ", count,
                             "; the first counts those on this machine of the second"));
  }
  place.address = needed_text("MASTER_ADDR", because);
  place.port = port_of("MASTER_PORT", needed_number("MASTER_PORT", because));
  place.hosted = variable_of("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = attempt_of("TORCHELASTIC_RESTART_COUNT");
  return place;
}

// The first machine of a list of Slurm: "node[03-05,9],gpu1" -> "node03".
std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; i++) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == std::string::npos) return "";
    const std::string numbers = list.substr(i + 1, close - i - 1);
    host += numbers.substr(0, numbers.find_first_of(",-"));
    i = close;
  }
  return host;
}

// Returns how many tasks machine `index` has: "2(x3),1" -> 2, 2, 2, 1.
std::optional<int64_t> tasks_on(const std::string& list, int64_t index) {
  int64_t passed = 0;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    const size_t times = part.find("(x");
    const auto tasks = number_in(part.substr(0, times));
    const auto machines = times == std::string::npos
                              ? std::optional<int64_t>(1)
                              : number_in(part.substr(times + 2, part.size() - times - 3));
    if (!tasks || !machines) return std::nullopt;
    passed += *machines;
    if (index < passed) return tasks;
    begin = end + 1;
  }
  return std::nullopt;
}

// The tasks of this machine. srun says it; where it does not, at least those up to this one.
int64_t slurm_tasks_here(const RankPlace& place, bool one_machine) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::optional<std::string> list = variable_of(name);
    if (!list) continue;
    const auto tasks = tasks_on(*list, number_of("SLURM_NODEID").value_or(0));
    if (!tasks || *tasks > place.count)
      throw ConfigError(concat("the variable ", name, " is '", *list,
                               "', which does not fit SLURM_NODEID and ", "SLURM_NTASKS"));
    return *tasks;
  }
  return one_machine ? place.count : place.local_rank + 1;
}

int slurm_port(const std::string& because) {
  if (const auto port = number_of("MASTER_PORT")) return port_of("MASTER_PORT", *port);
  return static_cast<int>(20000 + needed_number("SLURM_JOB_ID", because) % 20000);
}

// A step has variables of its own; an sbatch script and salloc's shell have those of the job.
bool is_slurm_step() { return variable_of("SLURM_STEP_NODELIST") || variable_of("SLURM_STEP_ID"); }

RankPlace place_of_slurm() {
  const std::optional<int64_t> of_step = number_of("SLURM_STEP_NUM_TASKS");
  const int64_t count = of_step ? *of_step : number_of("SLURM_NTASKS").value_or(1);
  if (count <= 1) return {};
  const char* counter = of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const std::string because = concat(counter, " is ", count);
  RankPlace place;
  place.launcher = "srun";
  place.count = count;
  place.rank = needed_number("SLURM_PROCID", because);
  require_below("SLURM_PROCID", place.rank, counter, count);
  place.local_rank = needed_number("SLURM_LOCALID", because);
  require_below("SLURM_LOCALID", place.local_rank, counter, count);
  const char* list_name = variable_of("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::string list = variable_of(list_name).value_or("");
  place.address = variable_of("MASTER_ADDR").value_or(first_host(list));
  if (place.address.empty()) {
    throw ConfigError(concat("the variable ", list_name, " is '", list,
                             "', which names no machine; set MASTER_ADDR to that of task 0"));
  }
  place.local_count = slurm_tasks_here(place, first_host(list) == list);
  require_below("SLURM_LOCALID", place.local_rank, "the number of tasks on this machine", place.local_count);
  place.port = slurm_port(because);
  place.attempt = attempt_of("SLURM_RESTART_COUNT");
  return place;
}

}  // namespace

bool is_started_by_trainer() { return variable_of(kLauncherVariable).has_value(); }

RankPlace rank_place() {
  const auto count = number_of("WORLD_SIZE");
  const bool is_one = count == 1 && !variable_of("RANK");  // said by something that starts no ranks
  if (count && !is_one) return place_of_variables(*count);
  return is_slurm_step() ? place_of_slurm() : RankPlace{};
}

}  // namespace trainer
