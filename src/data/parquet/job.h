// The interface between libtrainer_core and libtrainer_parquet, which links Arrow and is opened only when a
// Parquet file is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// The pyarrow whose libraries libtrainer_parquet links. CMake, scripts/setup and the wheel read it here.
inline constexpr const char* kPyarrowVersion = "26.0.1";
// The ending of the libraries of that version: libarrow.so.2600.
inline constexpr const char* kArrowAbi = "2600";

struct ParquetJob {
  std::string path;
  // The columns to read, with those of `also` that exist; all columns if one of them does not exist, or if
  // there are none.
  std::vector<std::string> columns = {}, also = {};
  bool only_first_rows = false;  // some of them, at least one
  // Gets the bytes of the columns in memory, before the first row.
  std::function<void(int64_t bytes)> expect = {};
  // Gets rows as JSON lines, and how many of all rows have been read.
  std::function<void(std::string_view lines, int64_t rows, int64_t of)> take = {};

  std::vector<std::string> notes = {};  // for the log
  std::string problem = {};             // the file's fault; "": none
};

inline constexpr const char* kReadParquet = "trainer_read_parquet";

}  // namespace trainer

// Reads a file batch by batch: at most some megabytes are in memory. Passes on what expect() and take()
// throw.
extern "C" void trainer_read_parquet(trainer::ParquetJob* job);
