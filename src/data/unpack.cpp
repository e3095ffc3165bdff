#include "data/unpack.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/base/strings.h"

#include "base/checksum.h"
#include "base/file_facts.h"
#include "base/mappings.h"
#include "base/not_text.h"
#include "base/progress.h"
#include "data/cache_folder.h"
#include "data/data_files.h"
#include "data/fields.h"
#include "data/parquet_library.h"
#include "text/chat/marks.h"

namespace trainer {

namespace {

// Marks of other programs are named if they are there.
std::vector<std::string> with_marks(std::vector<std::string> columns) {
  const std::vector<std::string> marks = names_of_marks();
  columns.insert(columns.end(), marks.begin(), marks.end());
  return columns;
}

UsedColumns columns_of_texts(const DataConfig& config) {
  UsedColumns used;
  const bool named = !config.input.empty() || !config.target.empty();
  const bool text = config.kind == DataKind::text;
  if (!named && !text && (config.kind == DataKind::chat || config.kind == DataKind::automatic))
    return {{"messages"}, with_marks({"tools", "functions", "chat_template_kwargs", "label", "kto_tag"})};
  if (config.input.empty() || (config.target.empty() && !text)) return used;
  used.columns = TextTemplate::parse(config.input, "data.input").fields();
  if (!config.target.empty()) {
    const std::vector<std::string> more = TextTemplate::parse(config.target, "data.target").fields();
    used.columns.insert(used.columns.end(), more.begin(), more.end());
  }
  used.also = with_marks({});
  return used;
}

}  // namespace

UsedColumns used_columns(const DataConfig& config) {
  UsedColumns used = columns_of_texts(config);
  if (!config.loss_weight.empty() && !used.columns.empty()) used.columns.push_back(config.loss_weight);
  return used;
}

namespace fs = std::filesystem;
namespace {

constexpr size_t kPiece = size_t{1} << 20;
using Take = std::function<void(std::string_view piece, size_t bytes_read)>;

constexpr const char* kCopyAgain = "; copy or download it again";

// Throws for a file that is not packed as its name says.
void check_mark(std::string_view packed, const char* packing, std::string_view mark) {
  if (packed.empty()) throw DataError(concat("is empty, not even compressed with ", packing, kCopyAgain));
  if (packed.starts_with(mark) || mark.starts_with(packed)) return;  // the latter ends too early
  const std::string other = not_text(packed);
  throw DataError(concat("is not compressed with ", packing, ", as its name says: it ",
                         other.empty() ? "holds text; let its name end in .jsonl, .csv or .tsv" : other));
}

// `begin`: of what was in the file.
void refuse_packed_twice(std::string_view begin) {
  if (begin.starts_with("\x1f\x8b") || begin.starts_with("\x28\xb5\x2f\xfd"))
    throw DataError("is compressed twice; unpack it once (gzip -d, or zstd -d)");
}

// Unpacks a gzip file, member by member. An incomplete last member is an error.
void unpack_gzip(std::string_view packed, const Take& take) {
  check_mark(packed, "gzip", "\x1f\x8b");
  z_stream stream{};
  constexpr int kGzip = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzip) != Z_OK) throw DataError("out of memory while unpacking it");
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, &inflateEnd);
  std::vector<char> piece(kPiece);
  size_t at = 0;
  int result = Z_OK;
  do {
    const size_t input = std::min(packed.size() - at, kPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + at));
    stream.avail_in = static_cast<uInt>(input);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    result = inflate(&stream, Z_NO_FLUSH);
    at += input - stream.avail_in;
    if (result != Z_OK && result != Z_STREAM_END)
      throw DataError(concat("is damaged at byte ", grouped(static_cast<int64_t>(at)),
                             result == Z_BUF_ERROR ? ": it ends too early" : ": what follows is not gzip",
                             kCopyAgain));
    take({piece.data(), piece.size() - stream.avail_out}, at);
    if (result == Z_STREAM_END) {
      inflateReset(&stream);
      // Programs that fill up blocks (on tapes, for example) write zeros after a member.
      at = std::min(packed.find_first_not_of('\0', at), packed.size());
    }
  } while (result != Z_STREAM_END || at < packed.size());
}

void unpack_zstd(std::string_view packed, const Take& take) {
  const bool skips = packed.size() > 4 && packed.substr(1, 3) == "\x2a\x4d\x18";  // a frame of something else
  if (!skips) check_mark(packed, "zstd", "\x28\xb5\x2f\xfd");
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  if (!stream) throw DataError("out of memory while unpacking it");
  constexpr int kLargestWindow = 31;  // the largest that zstd can make (--ultra --long=31)
  ZSTD_DCtx_setParameter(stream.get(), ZSTD_d_windowLogMax, kLargestWindow);
  std::vector<char> piece(kPiece);
  ZSTD_inBuffer input{packed.data(), packed.size(), 0};
  size_t left = 1;
  while (left != 0 || input.pos < input.size) {
    ZSTD_outBuffer output{piece.data(), piece.size(), 0};
    left = ZSTD_decompressStream(stream.get(), &output, &input);
    if (ZSTD_isError(left) != 0U)
      throw DataError(concat("is damaged at byte ", grouped(static_cast<int64_t>(input.pos)),
                             ": what follows is not zstd", kCopyAgain));
    take({piece.data(), output.pos}, input.pos);
    if (left != 0 && input.pos == input.size && output.pos < output.size)
      throw DataError(concat("is damaged at byte ", grouped(static_cast<int64_t>(input.pos)),
                             ": it ends too early", kCopyAgain));
  }
}

// Returns the unpacked size that the file states. gzip states it modulo 4 GB, and many zstd files not at all.
int64_t size_it_tells(std::string_view packed, bool gzip) {
  if (gzip) {
    if (packed.size() < 18) return 0;
    int64_t size = 0;
    for (size_t i = 1; i <= 4; i++) size = size << 8 | static_cast<unsigned char>(packed[packed.size() - i]);
    return std::max(size, static_cast<int64_t>(packed.size()));
  }
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  const bool known = size != ZSTD_CONTENTSIZE_UNKNOWN && size != ZSTD_CONTENTSIZE_ERROR;
  constexpr auto kMost = static_cast<unsigned long long>(std::numeric_limits<int64_t>::max());
  return known ? static_cast<int64_t>(std::min(size, kMost)) : static_cast<int64_t>(packed.size());
}

void check_room(const fs::path& folder, int64_t bytes) {
  const int64_t room = free_space(folder);
  if (bytes > room)
    throw FormatError(concat(folder.string(), " has ", bytes_string(room), " free, and at least ",
                             bytes_string(bytes), " are needed"));
}

// Checksums lie in a folder of their own, next to the folder of the unpacked files.
fs::path checksum_file(const fs::path& made) {
  return made.parent_path().parent_path() / "checksums" / (made.filename().string() + ".xxh3");
}

// Returns whether an unpacked file exists and has the content that it was made with. Reads all of it: a file
// whose end is missing may still end with a whole row.
bool is_whole(const fs::path& made) {
  std::error_code ignored;
  if (!fs::exists(made, ignored)) return false;
  const fs::path checksum = checksum_file(made);
  try {
    if (fs::exists(checksum, ignored) && file_checksum(made) == read_file(checksum)) {
      mark_used(made);
      mark_used(checksum);
      return true;
    }
    log::warning(concat(made.string(), ": was changed after it was unpacked; it is unpacked again"));
  } catch (const FormatError& e) {
    log::warning(concat(e.what(), "; the data file is unpacked again"));
  }
  return false;
}

enum class Packing { none, gzip, zstd, parquet };

Packing packing_of(const fs::path& path) {
  const std::string ending = path.extension().string();
  if (ending == ".parquet") return Packing::parquet;
  return ending == ".gz" ? Packing::gzip : ending == ".zst" ? Packing::zstd : Packing::none;
}

// Returns the path of the unpacked file. Rows of Parquet depend on the columns, and on how they are written:
// "rows" counts the ways.
fs::path unpacked_path(const fs::path& path, const fs::path& cache, std::string content, bool parquet,
                       const UsedColumns& used) {
  const fs::path inner = parquet ? path.stem() += ".jsonl" : path.stem();  // rows.csv of rows.csv.gz
  if (parquet) content += concat("\nrows 3\n", join(used.columns, "\n"), "\nalso\n", join(used.also, "\n"));
  return cache / "unpacked" /
         concat(inner.stem().string(), "-", checksum(content), inner.extension().string());
}

// A compressed or Parquet file, and where it is unpacked to.
struct PackedFile {
  std::shared_ptr<const MappedFile> file;
  Packing packing;
  fs::path made;
};

// Returns nothing for a file that is read as it is.
std::optional<PackedFile> open_packed(const fs::path& path, const fs::path& cache, const UsedColumns& used) {
  const Packing packing = packing_of(path);
  if (packing == Packing::none) return std::nullopt;
  const FileIdentity identity = FileIdentity::of(path);
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const FormatError& e) {
    throw DataError(e.what());
  }
  set_fault_code(*file, ExitCode::data);
  const std::string other = packing == Packing::parquet ? not_text(file->text()) : "";
  if (!other.empty() && !file->text().starts_with("PAR1"))
    throw of_family(ErrorCode::parquet,
                    DataError(concat(path.string(), ": is no Parquet file, as its name says: it ", other)));
  const std::string content = content_fingerprint(file->text(), identity);
  return PackedFile{file, packing, unpacked_path(path, cache, content, packing == Packing::parquet, used)};
}

// take: gets pieces of the rows as JSON lines, and the share of the file that was read.
template <class Take>
void unpack_parquet(const fs::path& path, const fs::path& folder, const UsedColumns& used, const Take& take) {
  ParquetJob job{.path = path.string(), .columns = used.columns, .also = used.also};
  job.expect = [&](int64_t bytes) { check_room(folder, bytes); };
  job.take = [&](std::string_view lines, int64_t rows, int64_t of) {
    take(lines, static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(of, 1)));
  };
  read_parquet(job);
  if (!job.problem.empty()) throw DataError(job.problem);
  for (const std::string& note : job.notes) log::info(concat("data: ", path.string(), ": ", note));
}

}  // namespace

fs::path unpacked(const fs::path& path, const fs::path& cache, const UsedColumns& used) {
  const auto opened = open_packed(path, cache, used);
  if (!opened) return path;
  const auto& [file, packing, made] = *opened;
  const std::string_view packed = file->text();
  const bool parquet = packing == Packing::parquet, gzip = packing == Packing::gzip;
  const fs::path folder = made.parent_path();
  if (is_whole(made)) return made;
  log::info(concat("data: ", path.string(), " is unpacked to ", made.string(), " (once)"));
  Progress shown("unpacking " + path.string(), static_cast<int64_t>(packed.size()), ProgressUnit::bytes);
  try {
    make_directories(folder);
    if (!parquet) check_room(folder, size_it_tells(packed, gzip));
    RunningChecksum sum;
    write_to_cache(made, [&](std::ostream& out) {
      const auto write = [&](std::string_view piece, double done) {
        out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
        sum.add(piece);
        shown.set(static_cast<int64_t>(done * static_cast<double>(packed.size())));
      };
      bool begins = true;
      const auto take = [&](std::string_view piece, size_t bytes_read) {
        if (begins && !piece.empty()) refuse_packed_twice(piece);
        begins = begins && piece.empty();
        write(piece, static_cast<double>(bytes_read) / static_cast<double>(packed.size()));
      };
      parquet ? unpack_parquet(path, folder, used, write)
      : gzip  ? unpack_gzip(packed, take)
              : unpack_zstd(packed, take);
      // Write the checksum before the rename: a file without a checksum is made again.
      write_to_cache(checksum_file(made), [&](std::ostream& file) { file << sum.digits(); });
    });
  } catch (const DataError& e) {
    throw of_family(parquet ? ErrorCode::parquet : ErrorCode::data_file,
                    DataError(concat(path.string(), ": ", e.what())));
  } catch (const FormatError& e) {
    throw of_family(ErrorCode::disk_full,
                    DataError(concat(path.string(), ": cannot be unpacked: ", e.what(),
                                     "; set data.cache to a folder with room, or unpack it yourself")));
  }
  return made;
}

std::string first_rows_before_unpacking(const fs::path& path, const fs::path& cache,
                                        const UsedColumns& used) {
  if (packing_of(path) != Packing::parquet) return "";
  std::error_code ignored;
  if (fs::exists(open_packed(path, cache, used)->made, ignored)) return "";
  std::string rows;
  ParquetJob job{.path = path.string(), .columns = used.columns, .also = used.also, .only_first_rows = true};
  job.expect = [](int64_t) {};
  job.take = [&](std::string_view lines, int64_t, int64_t) { rows = lines; };
  try {
    read_parquet(job);
  } catch (const DataError& e) {
    throw DataError(concat(path.string(), ": ", e.what()));
  }
  if (!job.problem.empty()) throw DataError(concat(path.string(), ": ", job.problem));
  return rows;
}

namespace {

// Throws for a column that no row can use. A null may be in this row only.
void check_text_column(const RowParser& row, const TextTemplate& text, const std::string& column) {
  const auto value = row.json(column);
  if (!value || !value->is_null()) text.text_of(row, column);
}

void check_row(const RowParser& row, const RowEncoder& encoder) {
  if (encoder.kind() == DataKind::preference || encoder.kind() == DataKind::feedback ||
      encoder.kind() == DataKind::classification || encoder.kind() == DataKind::pairs) {
    encoder.read(row);
    return;
  }
  if (encoder.kind() == DataKind::chat) {
    if (!conversation_form(row.fields())) encoder.read(row);
    return;
  }
  for (const std::string& text : {encoder.input_field(), encoder.target_field()}) {
    if (text.empty()) continue;
    const TextTemplate columns = TextTemplate::parse(text, "");
    for (const std::string& column : columns.fields()) check_text_column(row, columns, column);
  }
}

}  // namespace

std::unique_ptr<RowEncoder> check_columns(const std::vector<std::filesystem::path>& files,
                                          const std::filesystem::path& cache, const UsedColumns& used,
                                          const DataConfig& config, const std::string& model,
                                          const Tokenizer& tokenizer, bool encoder_decoder) {
  std::unique_ptr<RowEncoder> encoder;
  RowParser parser;
  for (const std::filesystem::path& file : files) {
    std::istringstream rows(first_rows_before_unpacking(file, cache, used));
    std::string row;
    for (int64_t number = 1; std::getline(rows, row); number++) {
      try {
        parser.parse(row, 0);
      } catch (const DataError&) {  // is reported with all bad rows
        continue;
      }
      try {
        if (!encoder) encoder = make_row_encoder(config, model, parser, tokenizer, encoder_decoder);
        check_row(parser, *encoder);
      } catch (const DataError& e) {
        throw DataError(concat(file.string(), ":", number, ": ", e.what()));
      }
    }
    if (!encoder) return nullptr;  // other rows decide on the fields
  }
  return encoder;
}

}  // namespace trainer
