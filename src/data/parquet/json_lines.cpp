#include "data/parquet/json_lines.h"

#include <algorithm>
#include <array>
#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/util/checked_cast.h>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace trainer {
namespace {

using arrow::Type;
using arrow::internal::checked_cast;

void append_text(std::string_view text, std::string& out) {
  constexpr const char* kDigits = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : "\\u00";
      if (out.back() == '0') {
        out += kDigits[c >> 4];
        out += kDigits[c & 15];
      }
    } else {
      out += c;
    }
  }
  out += '"';
}

template <class Number>
void append_integer(Number number, std::string& out) {
  std::array<char, 24> digits;
  out.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

// The fewest digits that give the number back; never those of an integer, as in Python.
template <class Number>
void append_real(Number number, std::string& out) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  std::array<char, 64> digits;
  const std::string_view text(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void append_value(const arrow::Array& values, int64_t row, std::string& out);

void append_items(const arrow::Array& values, int64_t begin, int64_t size, std::string& out) {
  out += '[';
  for (int64_t i = begin; i < begin + size; i++) {
    if (i > begin) out += ',';
    append_value(values, i, out);
  }
  out += ']';
}

template <class ListArray>
void append_list(const arrow::Array& values, int64_t row, std::string& out) {
  const auto& list = checked_cast<const ListArray&>(values);
  append_items(*list.values(), list.value_offset(row), list.value_length(row), out);
}

bool is_null(const arrow::Array& values, int64_t row);

// Without the fields that are null: all structs of a column have the fields that any of them has, so a null
// says only that this one does not have it.
void append_struct(const arrow::StructArray& values, int64_t row, std::string& out) {
  out += '{';
  bool first = true;
  for (int i = 0; i < values.num_fields(); i++) {
    if (is_null(*values.field(i), row)) continue;
    if (!std::exchange(first, false)) out += ',';
    append_text(values.struct_type()->field(i)->name(), out);
    out += ':';
    append_value(*values.field(i), row, out);
  }
  out += '}';
}

void append_map(const arrow::MapArray& values, int64_t row, std::string& out) {
  const int64_t begin = values.value_offset(row), end = begin + values.value_length(row);
  out += '{';
  for (int64_t i = begin; i < end; i++) {
    if (i > begin) out += ',';
    append_value(*values.keys(), i, out);
    out += ':';
    append_value(*values.items(), i, out);
  }
  out += '}';
}

template <class Array>
void append_text_of(const arrow::Array& values, int64_t row, std::string& out) {
  append_text(checked_cast<const Array&>(values).GetView(row), out);
}

template <class Array>
void append_integer_of(const arrow::Array& values, int64_t row, std::string& out) {
  append_integer(checked_cast<const Array&>(values).Value(row), out);
}

void append_printed(const arrow::Array& values, int64_t row, std::string& out) {
  const auto scalar = values.GetScalar(row);
  append_text(scalar.ok() ? (*scalar)->ToString() : scalar.status().ToString(), out);
}

void append_present(const arrow::Array& values, int64_t row, std::string& out) {
  switch (values.type_id()) {
    case Type::BOOL:
      out += checked_cast<const arrow::BooleanArray&>(values).Value(row) ? "true" : "false";
      return;
    case Type::INT8:
      return append_integer_of<arrow::Int8Array>(values, row, out);
    case Type::INT16:
      return append_integer_of<arrow::Int16Array>(values, row, out);
    case Type::INT32:
      return append_integer_of<arrow::Int32Array>(values, row, out);
    case Type::INT64:
      return append_integer_of<arrow::Int64Array>(values, row, out);
    case Type::UINT8:
      return append_integer_of<arrow::UInt8Array>(values, row, out);
    case Type::UINT16:
      return append_integer_of<arrow::UInt16Array>(values, row, out);
    case Type::UINT32:
      return append_integer_of<arrow::UInt32Array>(values, row, out);
    case Type::UINT64:
      return append_integer_of<arrow::UInt64Array>(values, row, out);
    case Type::FLOAT:
      return append_real(checked_cast<const arrow::FloatArray&>(values).Value(row), out);
    case Type::DOUBLE:
      return append_real(checked_cast<const arrow::DoubleArray&>(values).Value(row), out);
    case Type::STRING:
    case Type::BINARY:
      return append_text_of<arrow::BinaryArray>(values, row, out);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return append_text_of<arrow::LargeBinaryArray>(values, row, out);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return append_text_of<arrow::BinaryViewArray>(values, row, out);
    case Type::LIST:
      return append_list<arrow::ListArray>(values, row, out);
    case Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(values, row, out);
    case Type::FIXED_SIZE_LIST:
      return append_list<arrow::FixedSizeListArray>(values, row, out);
    case Type::STRUCT:
      return append_struct(checked_cast<const arrow::StructArray&>(values), row, out);
    case Type::MAP:
      return append_map(checked_cast<const arrow::MapArray&>(values), row, out);
    case Type::DICTIONARY: {
      const auto& coded = checked_cast<const arrow::DictionaryArray&>(values);
      return append_value(*coded.dictionary(), coded.GetValueIndex(row), out);
    }
    case Type::EXTENSION:
      return append_value(*checked_cast<const arrow::ExtensionArray&>(values).storage(), row, out);
    default:
      return append_printed(values, row, out);
  }
}

// An entry of a dictionary can be null, too.
bool is_null(const arrow::Array& values, int64_t row) {
  if (values.type_id() == Type::NA || values.IsNull(row)) return true;
  if (values.type_id() == Type::EXTENSION)
    return is_null(*checked_cast<const arrow::ExtensionArray&>(values).storage(), row);
  if (values.type_id() != Type::DICTIONARY) return false;
  const auto& coded = checked_cast<const arrow::DictionaryArray&>(values);
  return is_null(*coded.dictionary(), coded.GetValueIndex(row));
}

void append_value(const arrow::Array& values, int64_t row, std::string& out) {
  if (is_null(values, row)) {
    out += "null";
  } else {
    append_present(values, row, out);
  }
}

std::string why_not_parts(const arrow::DataType& type) {
  for (const auto& field : type.fields()) {
    const auto same = std::ranges::count_if(
        type.fields(), [&](const auto& other) { return other->name() == field->name(); });
    if (same > 1) return "has " + std::to_string(same) + " fields with the name \"" + field->name() + "\"";
    if (const std::string problem = why_not_json(*field->type(), /*nested=*/true); !problem.empty())
      return field->name() + ": " + problem;
  }
  return "";
}

}  // namespace

std::string why_not_json(const arrow::DataType& type, bool nested) {
  switch (type.id()) {
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
      return nested ? "bytes (" + type.ToString() + "), not text" : "";
    case Type::FIXED_SIZE_BINARY:
      return "bytes (" + type.ToString() + "), not text";
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::STRUCT:
      return why_not_parts(type);
    case Type::MAP: {
      const auto& map = checked_cast<const arrow::MapType&>(type);
      const Type::type key = map.key_type()->id();
      if (key != Type::STRING && key != Type::LARGE_STRING)
        return "a map from " + map.key_type()->ToString() + ", not from text";
      return why_not_json(*map.item_type(), true);
    }
    case Type::DICTIONARY:
      return why_not_json(*checked_cast<const arrow::DictionaryType&>(type).value_type(), nested);
    case Type::EXTENSION:
      return why_not_json(*checked_cast<const arrow::ExtensionType&>(type).storage_type(), nested);
    default:
      return type.num_fields() > 0 ? "the type " + type.ToString() : "";
  }
}

void append_json_lines(const arrow::RecordBatch& batch, std::string& out) {
  for (int64_t row = 0; row < batch.num_rows(); row++) {
    out += '{';
    for (int i = 0; i < batch.num_columns(); i++) {
      if (i > 0) out += ',';
      append_text(batch.column_name(i), out);
      out += ':';
      append_value(*batch.column(i), row, out);
    }
    out += "}\n";
  }
}

}  // namespace trainer
