#include <algorithm>
#include <streambuf>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/safetensors.h"

#include "base/progress.h"
#include "base/special_files.h"

namespace trainer {
namespace {

using Item = const TensorSources::value_type*;

std::vector<Item> in_file_order(const TensorSources& tensors) {
  std::vector<Item> items;
  for (const auto& item : tensors) items.push_back(&item);
  std::stable_sort(items.begin(), items.end(),
                   [](Item a, Item b) { return dtype_size(a->second.dtype) > dtype_size(b->second.dtype); });
  return items;
}

std::string header_for(const std::vector<Item>& items, const std::map<std::string, std::string>& metadata,
                       const std::string& where) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  size_t at = 0;
  std::string text;
  for (Item item : items) {
    const auto& [name, tensor] = *item;
    if (name == "__metadata__") throw FormatError(concat(where, ": no tensor can be named __metadata__"));
    const size_t bytes = tensor_bytes(tensor.dtype, tensor.shape, concat(where, ": tensor '", name, "'"));
    // push_back, because operator[] of an ordered object searches all keys.
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back(
        {name,
         {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}}});
    at += bytes;
  }
  text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

void write_length(std::ostream& out, uint64_t length) {
  for (int i = 0; i < 8; i++) out.put(static_cast<char>(length >> (8 * i) & 0xff));
}

int64_t bytes_of(const TensorSources& tensors) {
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor_bytes(tensor.dtype, tensor.shape, name);
  return static_cast<int64_t>(bytes);
}

}  // namespace

TensorSources sources_of(const std::map<std::string, TensorView>& tensors) {
  TensorSources sources;
  for (const auto& [name, view] : tensors) {
    sources[name] = {view.dtype, view.shape, [view = view](std::ostream& out) {
                       out.write(reinterpret_cast<const char*>(view.data),
                                 static_cast<std::streamsize>(view.nbytes));
                     }};
  }
  return sources;
}

void write_safetensors(const std::filesystem::path& path, const TensorSources& tensors,
                       std::map<std::string, std::string> metadata) {
  metadata.try_emplace("format", "pt");
  const std::vector<Item> items = in_file_order(tensors);
  const std::string header = header_for(items, metadata, path.string());
  Progress shown("writing " + path.filename().string(), bytes_of(tensors), ProgressUnit::bytes);
  write_atomically(path, [&](std::ostream& out) {
    write_length(out, header.size());
    out << header;
    for (Item item : items) {
      const auto& [name, tensor] = *item;
      const std::string where = concat(path.string(), ": tensor '", name, "'");
      const auto expected = static_cast<std::streamoff>(tensor_bytes(tensor.dtype, tensor.shape, where));
      const std::streamoff before = out.tellp();
      tensor.write ? tensor.write(out) : static_cast<void>(out.seekp(expected, std::ios::cur));
      shown.add(expected);
      if (out.tellp() - before != expected) {
        throw FormatError(concat(where, ": ", out.tellp() - before, " bytes were written where ",
                                 shape_string(tensor.shape), " of ", dtype_name(tensor.dtype), " has ",
                                 expected));
      }
    }
  });
}

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors,
                       std::map<std::string, std::string> metadata) {
  write_safetensors(path, sources_of(tensors), std::move(metadata));
}

// Writes tensors into the room that another process has left for them.

namespace {

// Writes to a range of a file.
class RangeOfFile : public std::streambuf {
 public:
  RangeOfFile(PartialFile& file, int64_t begin) : file_(file), begin_(begin) {}
  int64_t written() const { return at_; }

 protected:
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    file_.write_at(begin_ + at_, {data, static_cast<size_t>(size)});
    at_ += size;
    return size;
  }
  int_type overflow(int_type c) override {
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }

 private:
  PartialFile& file_;
  int64_t begin_, at_ = 0;
};

}  // namespace

void fill_safetensors(const std::filesystem::path& path, const TensorSources& tensors) {
  const SafetensorsFile room = read_safetensors(path);
  PartialFile file(path);
  for (const auto& [name, tensor] : tensors) {
    const std::string where = concat(path.string(), ": tensor '", name, "'");
    const auto found = room.tensors.find(name);
    if (found == room.tensors.end()) throw FormatError(concat(where, ": the file has no room for it"));
    const TensorView& place = found->second;
    if (place.dtype != tensor.dtype || place.shape != tensor.shape) {
      throw FormatError(concat(where, ": the file has room for ", dtype_name(place.dtype), " ",
                               shape_string(place.shape), ", not for ", dtype_name(tensor.dtype), " ",
                               shape_string(tensor.shape)));
    }
    RangeOfFile range(file, place.data - room.mapping->data());
    std::ostream out(&range);
    out.exceptions(std::ios::badbit | std::ios::failbit);
    tensor.write(out);
    if (range.written() != static_cast<int64_t>(place.nbytes))
      throw FormatError(
          concat(where, ": ", range.written(), " bytes were written where it has ", place.nbytes));
  }
  file.sync();
}

}  // namespace trainer
