// The types of values that keys of the configuration have.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

namespace trainer {

enum class ModelDtype { automatic, bf16, fp32 };
enum class ModelInit { pretrained, random };
enum class DataKind {
  automatic,
  seq2seq,
  completion,
  text,
  chat,
  preference,
  feedback,
  span_corruption,
  classification,
  pairs
};
// What a row is scored as, by a head of its own in place of the vocabulary's (docs/classification.md): a text
// by a class, a number or a reward; each word of it by a class; or by what it means, a vector.
enum class RowScore { none, label, number, answer, tags, vector };
constexpr bool has_classes(RowScore score) { return score == RowScore::label || score == RowScore::tags; }
// How span_corruption takes parts of a text out.
enum class NoiseForm { spans, prefix, ul2 };
enum class LongSamples { truncate, drop, split };
enum class TruncationSide { right, left };
enum class BadRows { error, skip };
enum class LossOn { all_turns, last_turn, everything };
// What happens to marks of other programs on a message that are not known.
enum class UnknownMarks { error, ignore };
enum class MicroBatching { tokens, samples };
enum class CpuProducts { automatic, mkl, onednn, by_type, builtin };
enum class IntervalStrategy { no, steps, epoch };
enum class SchedulerType { linear, cosine, constant, constant_with_warmup, polynomial, inverse_sqrt };
enum class SaveDtype { automatic, bf16, fp16, fp32 };
enum class StateDtype { automatic, fp32, bf16 };
// Where the log-probabilities of the reference come from (docs/preferences.md).
enum class Reference { automatic, adapter_off, kept, none };
// The tensors that the ranks of a run shard (docs/parallel.md).
enum class Shard { automatic, none, optimizer, all };
enum class NotifyFormat { automatic, discord, slack, json, text };

// A number of at least 1, or `auto`: the program chooses it with the memory plan before it is used. Or `fit`:
// this number, unless the memory plan says that it would not fit.
class CountOrAuto {
 public:
  constexpr CountOrAuto(int64_t count) : count_(count) {}
  static constexpr CountOrAuto automatic() { return {0}; }
  static constexpr CountOrAuto if_it_fits(int64_t count) {
    CountOrAuto made(count);
    made.gives_way_ = true;
    return made;
  }
  constexpr bool is_automatic() const { return count_ == 0; }
  constexpr bool gives_way() const { return gives_way_; }
  constexpr operator int64_t() const { return count_; }

 private:
  int64_t count_;
  bool gives_way_ = false;
};

// true, false, or `auto`: the program decides.
class BoolOrAuto {
 public:
  template <std::same_as<bool> Bool>
  constexpr BoolOrAuto(Bool value) : value_(value) {}
  static constexpr BoolOrAuto automatic() { return {}; }
  constexpr bool is_automatic() const { return !value_; }
  // Returns the value, which is `decided` for `auto`.
  constexpr bool of(bool decided) const { return value_.value_or(decided); }
  constexpr bool operator==(const BoolOrAuto&) const = default;

 private:
  constexpr BoolOrAuto() = default;
  std::optional<bool> value_;
};

// A number of at least 1, or `all` that there are.
class CountOrAll {
 public:
  constexpr CountOrAll(int64_t count) : count_(count) {}
  static constexpr CountOrAll all() { return {0}; }
  constexpr bool is_all() const { return count_ == 0; }
  // Returns the number, which is `there_are` for `all`.
  constexpr int64_t of(int64_t there_are) const { return is_all() ? there_are : count_; }

 private:
  int64_t count_;
};

// What the backward pass computes again, in steps of which each takes less memory and more time than the one
// before: nothing (false), what is quick to compute (`light`), all within a number of blocks, from the first,
// and in the others what is quick, all within all blocks (true). Or as much as the memory plan needs
// (`auto`), or `fit`: nothing, unless that would not fit.
class Recompute {
 public:
  template <std::same_as<bool> Bool>
  constexpr Recompute(Bool all) : blocks_(all ? kAll : 0) {}
  static constexpr Recompute blocks(int64_t count) { return Recompute(count); }
  static constexpr Recompute light() { return Recompute(kLight); }
  static constexpr Recompute automatic() { return Recompute(kAutomatic); }
  static constexpr Recompute if_needed() { return Recompute(kIfNeeded); }
  constexpr bool is_automatic() const { return blocks_ == kAutomatic; }
  constexpr bool gives_way() const { return blocks_ == kIfNeeded; }
  // Returns the number of recomputed blocks for a model with `num_blocks`; all of them when `auto`, none when
  // `fit`.
  constexpr int64_t of(int64_t num_blocks) const {
    return is_automatic() ? num_blocks : std::clamp<int64_t>(blocks_, 0, num_blocks);
  }
  // Returns whether blocks that are not recomputed are `light`.
  constexpr bool is_light() const { return blocks_ == kLight || blocks_ > 0 || is_automatic(); }
  constexpr auto operator<=>(const Recompute&) const = default;

 private:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max(), kAutomatic = -1, kIfNeeded = -2,
                           kLight = -3;
  explicit constexpr Recompute(int64_t blocks) : blocks_(blocks) {}
  int64_t blocks_;
};

// The tensors that lie outside the device's memory: in the host's memory for a GPU, in a file for the CPU.
struct Offload {
  bool automatic = false;  // the memory plan chooses, before anything is used
  bool optimizer = false, weights = false, activations = false;
  bool any() const { return optimizer || weights || activations; }
  auto operator<=>(const Offload&) const = default;
};

}  // namespace trainer
