// The loop of a generation: inputs are begun as others end, and a step adds a token to each sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/generation/generate.h"

#include "generation/sampling.h"
#include "generation/session.h"

namespace trainer {

// What has been answered, over all attempts.
struct Answered {
  explicit Answered(size_t of_inputs) : answers(of_inputs) {}

  std::vector<std::vector<Tokens>> answers;  // of each input; empty: not yet
  size_t inputs = 0;                         // that are answered
  int64_t tokens = 0;                        // of these
  // Called when an input is answered. May be empty.
  std::function<void()> on_input{};

  void put(size_t input, std::vector<Tokens> of_input, int64_t tokens_of_input);
};

class Answering {
 public:
  Answering(const Model& model, const GenerationConfig& config, const GenerationHooks& hooks,
            at::Device device, Answered& answered);
  virtual ~Answering() = default;

  // Answers all that wait, `size` inputs at once. hooks.numbers has a number for each input.
  void run(Waiting waiting, int64_t size);

 protected:
  // New rows, and the logits of their first token: undefined, if that comes with the next step.
  virtual void begin(const std::vector<size_t>& inputs, const at::Tensor& logits) = 0;
  // All rows, and the logits of their next token.
  virtual void step(const at::Tensor& logits) = 0;
  virtual std::vector<int64_t> last_tokens() const = 0;  // of all rows; empty: there are none
  virtual std::vector<int64_t> open_tokens()
      const = 0;  // so far, for each input that has begun and not ended

  const GenerationConfig& c_;
  const GenerationHooks& hooks_;
  const LogitsProcessors processors_;
  Session session_;
  Answered& answered_;
  const std::vector<Tokens>* inputs_ = nullptr;

 private:
  void tell_progress() const;
};

// Greedy decoding and sampling, and beam search.
std::unique_ptr<Answering> token_by_token(const Model& model, const GenerationConfig& config,
                                          const GenerationHooks& hooks, at::Device device,
                                          Answered& answered);
std::unique_ptr<Answering> beam_search(const Model& model, const GenerationConfig& config,
                                       const GenerationHooks& hooks, at::Device device, Answered& answered);

}  // namespace trainer
