// A first pass over JSON text that builds nothing, to refuse text that is nested too deeply before it is
// parsed. The callback of nlohmann's parser could do the same, but it scans everything parsed so far at the
// end of each object, which takes quadratic time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace trainer {

class JsonStructure : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Called with the depth of each object or list, and with the keys of objects; they throw to refuse.
  std::function<void(int depth)> open;
  std::function<void(int depth, const std::string& name)> name;

  // Stops silently at invalid JSON; the parser reports that.
  void walk(std::string_view text) { nlohmann::json::sax_parse(text, this); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool key(std::string& text) override {
    if (name) name(depth_, text);
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool enter() {
    depth_++;
    if (open) open(depth_);
    return true;
  }
  bool leave() {
    depth_--;
    return true;
  }

  int depth_ = 0;
};

}  // namespace trainer
