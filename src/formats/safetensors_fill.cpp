// Writes tensors into the room that another process has left for them.
#include <streambuf>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/safetensors.h"

#include "base/partial_file.h"

namespace trainer {
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
