// libtrainer_parquet.so: Parquet files as JSON lines.
#include <algorithm>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/type.h>
#include <memory>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <stdexcept>

#include "data/parquet/job.h"
#include "data/parquet/json_lines.h"

namespace trainer {
namespace {

using parquet::arrow::FileReader;
using parquet::arrow::SchemaField;

// A fault of the file, for ParquetJob::problem.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Says what Arrow's messages mean, in words of ours: they quote its sources, and the bytes of a damaged file.
std::string in_our_words(const std::string& said) {
  const auto says = [&](const char* part) { return said.find(part) != std::string::npos; };
  if (says("hecksum") || says("CRC"))
    return "a page does not have its checksum; copy or download the file again";
  if (says("ncrypt") || says("PARE")) return "is encrypted, and encrypted Parquet is not read";
  if (says("odec") || says("ompression"))
    return "is compressed in a way that is not read here, or is damaged; write it with zstd, snappy or gzip";
  if (says("UTF8") || says("UTF-8")) return "has text that is not UTF-8";
  if (says("malloc") || says("ut of memory"))
    return "has a page that takes more memory than there is; write smaller row groups";
  if (says("ermission denied") || says("not a regular file") || says("Failed to open"))
    return "cannot be opened; may it be read?";
  return "is damaged or incomplete; copy or download it again";
}

std::string message_of(const arrow::Status& status) { return in_our_words(status.message()); }

std::unique_ptr<FileReader> open_parquet(const std::string& path) {
  parquet::ReaderProperties properties(arrow::system_memory_pool());
  properties.enable_buffered_stream();  // else a column of a row group is read at once
  properties.set_buffer_size(1 << 20);
  properties.set_page_checksum_verification(true);
  parquet::arrow::FileReaderBuilder builder;
  const arrow::Status opened = builder.OpenFile(path, /*memory_map=*/false, properties);
  if (!opened.ok()) {
    const std::string said = message_of(opened);
    throw Refused(said.starts_with("is damaged") ? "is no Parquet file, or " + said : said);
  }
  parquet::ArrowReaderProperties reading(/*use_threads=*/false);
  reading.set_pre_buffer(false);
  auto reader = builder.memory_pool(arrow::system_memory_pool())->properties(reading)->Build();
  if (!reader.ok()) throw Refused("its columns cannot be read: it " + message_of(reader.status()));
  return std::move(*reader);
}

void add_leaves(const SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const SchemaField& child : field.children) add_leaves(child, leaves);
}

struct Column {
  std::string name;
  std::vector<int> leaves;  // the columns of the file that it is made of
};

class Rows {
 public:
  explicit Rows(ParquetJob& job) : job_(job), reader_(open_parquet(job.path)) { choose(); }

  void read() {
    const auto metadata = reader_->parquet_reader()->metadata();
    all_rows_ = metadata->num_rows();
    if (all_rows_ == 0) throw Refused("holds no rows");
    std::vector<int> leaves;
    for (const Column& column : columns_)
      leaves.insert(leaves.end(), column.leaves.begin(), column.leaves.end());
    std::ranges::sort(leaves);
    int64_t bytes = 0;
    for (int group = 0; group < metadata->num_row_groups(); group++) bytes += bytes_of(group, leaves);
    job_.expect(bytes);
    for (int group = 0; group < metadata->num_row_groups() && !is_done(); group++) {
      const int64_t before = rows_;
      if (const std::string problem = read(group, leaves, /*keep=*/true); !problem.empty())
        throw Refused("row group " + std::to_string(group) + " (from row " + std::to_string(before + 1) +
                      ")" + guilty(group) + ": " + problem);
    }
  }

 private:
  // A row as JSON would keep the last of them and drop the others.
  void refuse_twice(const std::string& name) const {
    const auto same = std::ranges::count(
        columns_, name, [](const Column& column) -> const std::string& { return column.name; });
    if (same > 1)
      throw Refused("has " + std::to_string(same) + " columns with the name \"" + name +
                    "\"; rename or remove one");
  }

  void choose() {
    const auto& fields = reader_->manifest().schema_fields;
    const auto is_there = [&](const std::string& name) {
      return std::ranges::any_of(fields, [&](const SchemaField& f) { return f.field->name() == name; });
    };
    const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
      return std::ranges::find(names, name) != names.end();
    };
    const bool some = !job_.columns.empty() && std::ranges::all_of(job_.columns, is_there);
    std::string left_out;
    for (const SchemaField& field : fields) {
      const std::string& name = field.field->name();
      const bool wanted = some && is_in(job_.columns, name);
      if (some && !wanted && !is_in(job_.also, name)) continue;
      std::string problem = why_not_json(*field.field->type());
      const arrow::Type::type type = field.field->type()->id();
      const bool bytes = type == arrow::Type::BINARY || type == arrow::Type::LARGE_BINARY;
      if (bytes && !wanted)
        problem = "bytes; name the column in data.input or data.target to read it as text";
      if (!problem.empty() && wanted) throw Refused("column \"" + name + "\" cannot be read: " + problem);
      if (!problem.empty()) {
        left_out += (left_out.empty() ? "\"" : "; \"") + name + "\": " + problem;
        continue;
      }
      columns_.push_back({name, {}});
      add_leaves(field, columns_.back().leaves);
    }
    for (const Column& column : columns_) refuse_twice(column.name);
    if (columns_.empty())
      throw Refused(left_out.empty() ? "has no columns" : "none of its columns can be read: " + left_out);
    if (!left_out.empty()) job_.notes.push_back("columns that are not read: " + left_out);
  }

  // A damaged file may name any size; so many columns of this one can be added up.
  static int64_t size_of(int64_t bytes) {
    constexpr int64_t kMost = int64_t{1} << 50;
    if (bytes < 0 || bytes > kMost) throw Refused(in_our_words(""));
    return bytes;
  }

  int64_t bytes_of(int group, const std::vector<int>& leaves) const {
    const auto metadata = reader_->parquet_reader()->metadata()->RowGroup(group);
    int64_t bytes = 0;
    for (const int leaf : leaves) bytes += size_of(metadata->ColumnChunk(leaf)->total_uncompressed_size());
    return bytes;
  }

  // Some megabytes at once, however long the rows are.
  void choose_batch(int group, const std::vector<int>& leaves) {
    constexpr int64_t kBytes = 4 << 20, kMost = 1024, kFirst = 100;
    const int64_t rows =
        std::max<int64_t>(reader_->parquet_reader()->metadata()->RowGroup(group)->num_rows(), 1);
    const int64_t row = std::max<int64_t>(bytes_of(group, leaves) / rows, 1);
    reader_->set_batch_size(std::clamp<int64_t>(kBytes / row, 1, job_.only_first_rows ? kFirst : kMost));
  }

  bool is_done() const { return job_.only_first_rows && rows_ > 0; }

  // Returns what is wrong with the row group; "" for nothing. `keep`: gives the rows to the job.
  std::string read(int group, const std::vector<int>& leaves, bool keep) {
    try {
      choose_batch(group, leaves);
      auto batches = reader_->GetRecordBatchReader({group}, leaves);
      if (!batches.ok()) return message_of(batches.status());
      for (;;) {
        std::shared_ptr<arrow::RecordBatch> batch;
        if (const arrow::Status status = (*batches)->ReadNext(&batch); !status.ok())
          return message_of(status);
        if (!batch) return "";
        // A damaged page may give places in a dictionary that it does not have.
        if (const arrow::Status status = batch->ValidateFull(); !status.ok()) return message_of(status);
        if (keep) give(*batch);
        if (keep && is_done()) return "";
      }
    } catch (const parquet::ParquetException& error) {
      return in_our_words(error.what());
    }
  }

  void give(const arrow::RecordBatch& batch) {
    lines_.clear();
    append_json_lines(batch, lines_);
    rows_ += batch.num_rows();
    job_.take(lines_, rows_, all_rows_);
  }

  // Reads the columns of a damaged row group alone, to name the one that is wrong.
  std::string guilty(int group) {
    for (const Column& column : columns_) {
      if (!read(group, column.leaves, /*keep=*/false).empty()) return ", column \"" + column.name + "\"";
    }
    return "";
  }

  ParquetJob& job_;
  std::unique_ptr<FileReader> reader_;
  std::vector<Column> columns_;
  std::string lines_;
  int64_t rows_ = 0, all_rows_ = 0;
};

}  // namespace
}  // namespace trainer

extern "C" void trainer_read_parquet(trainer::ParquetJob* job) {
  try {
    trainer::Rows(*job).read();
  } catch (const trainer::Refused& refused) {
    job->problem = refused.what();
  } catch (const parquet::ParquetException& error) {
    job->problem = trainer::in_our_words(error.what());
  } catch (const std::logic_error&) {  // a size that no vector can have; ours are runtime errors
    job->problem = trainer::in_our_words("");
  }
}
