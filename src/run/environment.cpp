#include "run/environment.h"

#include <ctime>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"
#include "trainer/base/version.h"
#include "trainer/device/device.h"

#include "ops/cpu_products.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMostStarts = 100;

// The value after ':' in the first line of a file in /proc that begins with `name`; "" if there is none.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name)) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string processor() {
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return concat(name.empty() ? "unknown" : name, ", ", std::thread::hardware_concurrency(), " threads");
}

std::string main_memory() {
  return bytes_string(static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE));
}

Json earlier_starts(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return Json::array();
  try {
    const Json stored = Json::parse(read_file(file));
    if (stored.is_object() && stored.contains("starts") && stored["starts"].is_array())
      return stored["starts"];
  } catch (const std::exception& e) {
    log::warning(concat(file.string(), ": cannot be read, and is written anew: ", e.what()));
  }
  return Json::array();
}

Json this_start(Model& model, c10::Device device, const RunLength& length, int64_t first_step) {
  int64_t parameters = 0, trained = 0;
  model.for_each_parameter([&](const std::string&, Parameter& parameter) {
    parameters += parameter.numel();
    if (parameter.trained()) trained += parameter.numel();
  });
  utsname system{};
  ::uname(&system);
  return {{"time", std::time(nullptr)},
          {"after_step", first_step},
          {"total_steps", length.total_steps},
          {"steps_per_epoch", length.steps_per_epoch},
          {"model", model.model_type()},
          {"parameters", parameters},
          {"trained_parameters", trained},
          {"device", describe_device(device)},
          {"processor", processor()},
          {"cpu_products", describe_cpu_products()},
          {"memory", main_memory()},
          {"host", system.nodename},
          {"system", concat(system.sysname, " ", system.release, " ", system.machine)},
          {"trainer", kVersion},
          {"libtorch", TORCH_VERSION}};
}

}  // namespace

void keep_environment(const std::filesystem::path& directory, Model& model, c10::Device device,
                      const RunLength& length, int64_t first_step, bool keeps_results) {
  const std::filesystem::path file = directory / "environment.json";
  try {
    Json starts = keeps_results ? earlier_starts(file) : Json::array();
    if (starts.size() >= kMostStarts) starts.erase(1);  // the first one stays
    starts.push_back(this_start(model, device, length, first_step));
    const auto replace = Json::error_handler_t::replace;  // a name of a host need not be UTF-8
    write_atomically(file, Json{{"starts", std::move(starts)}}.dump(2, ' ', false, replace) + "\n");
  } catch (const FormatError& e) {
    log::warning(concat("the environment is not noted: ", e.what()));
  }
}

}  // namespace trainer
