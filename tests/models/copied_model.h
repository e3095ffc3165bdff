// The files of a golden model in a folder of their own, to be changed.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"

#include "models/golden.h"
#include "support/error_message.h"
#include "support/golden_directory.h"
#include "support/temporary_directory.h"

namespace trainer {

struct CopiedModel {
  explicit CopiedModel(const std::string& name) : golden(name) {
    std::filesystem::copy(golden_directory(name) / "model", directory.path(),
                          std::filesystem::copy_options::recursive);
    weights = read_safetensors(path("model.safetensors"));
  }
  std::filesystem::path path(const std::string& name) const { return directory.path() / name; }
  void write_weights() {
    write_safetensors(path("new"), weights.tensors);
    std::filesystem::rename(path("new"), path("model.safetensors"));
  }
  void change_config(const std::function<void(nlohmann::json&)>& change) const {
    std::ifstream in(path("config.json"));
    nlohmann::json config = nlohmann::json::parse(in);
    change(config);
    std::ofstream(path("config.json")) << config.dump(1);
  }
  // Of loading it.
  std::string error() const {
    return test::error_message<FormatError>([&] { load_model(directory.path(), {}); });
  }

  std::string golden;
  test::TemporaryDirectory directory;
  SafetensorsFile weights;
};

}  // namespace trainer
