// Values of Arrow as JSON.
#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

// Returns why values of a type cannot be written as JSON; "" if they can. A column of bytes can be, as text;
// bytes inside other values cannot.
std::string why_not_json(const arrow::DataType& type, bool nested = false);

// Appends the rows of a batch, one JSON object on each line.
//   numbers, true and false, null; text, also in dictionaries; lists; objects, also of maps from text
//   fields of structs that are null: left out
//   floating point: NaN and infinity are null
//   dates, times, decimals: text, as Arrow prints them
void append_json_lines(const arrow::RecordBatch& batch, std::string& out);

}  // namespace trainer
