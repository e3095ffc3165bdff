// A long table on purpose: the one place where keys are described.
#include "config/schema.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trainer/base/strings.h"

#include "config/declare.h"
#include "config/weight_formats.h"

namespace trainer::config {
namespace {

Section model_section() {
  using M = ModelConfig;
  const std::string& four_bits = smallest_weight_format().name;
  return section(
      "model", "The model to fine-tune.",
      {key(&M::path, "path", OnResume::fixes_run_by_content,
           "Directory of the model in Hugging Face format: config.json, *.safetensors and the tokenizer "
           "files; or the name of a model on the Hugging Face Hub (google/flan-t5-base, "
           "google/flan-t5-base@REVISION), "
           "which is "
           "downloaded if it is not in the cache (docs/model-names.md).")
           .path(),
       key(&M::dtype, "dtype", OnResume::fixes_run_by_content,
           "Data type of the weights in memory. auto: bf16 if the device computes in bf16, else fp32.")
           .refuses("fp16",
                    "gives NaN on T5 and needs loss scaling; use bf16, or fp32 where the GPU has no bf16")
           .refuses("float16",
                    "gives NaN on T5 and needs loss scaling; use bf16, or fp32 where the GPU has no bf16")
           .refuses("bfloat16", "is called bf16 here")
           .refuses("float32", "is called fp32 here"),
       key(&M::init, "init", OnResume::fixes_run,
           "The weights that training begins with. pretrained: those of path. random: new ones, by "
           "config.json "
           "and tokenizer of path and by the seed, for pretraining (docs/pretraining.md)."),
       key(&M::quantize, "quantize", OnResume::fixes_run,
           concat("Keep the frozen weights of linear layers in fewer bits (QLoRA), quantised while they are "
                  "loaded. ",
                  weight_format_help(),
                  "Embeddings, norms and the output head stay as they are. Only with lora. A model whose "
                  "config.json says that it is stored so is read as it is (docs/quantization.md)."))
           .one_of(weight_format_values())
           .refuses("fp4", concat("is less accurate than ", four_bits, " and not supported; use ", four_bits))
           .refuses("int8", concat("is not supported; use fp8, which has 8 bits as well, or ", four_bits))
           .refuses("int4", concat("is not supported; use ", four_bits)),
       key(&M::double_quant, "double_quant", OnResume::fixes_run,
           "Keep the scales of the blocks in 8 bits. 4.13 bits a weight instead of 4.5.")
           .only_with("model.quantize", four_bits),
       key(&M::add_tokens, "add_tokens", OnResume::fixes_run,
           "Tokens to add to the tokenizer. A list of strings. If the embedding has too few rows for them, "
           "it grows, and so does an output head that is not tied to it; new rows are the mean of the "
           "existing ones. Both are then trained and saved in full (with LoRA, next to the adapter), and the "
           "tokenizer is saved with them."),
       key(&M::encoder_only, "encoder_only", OnResume::fixes_run,
           "Train the encoder of a T5 alone, with a head on the mean of its states, for objective.name: "
           "classification or regression. For token_classification and embedding it is always so.")});
}

Section lora_section() {
  using L = LoraConfig;
  Section lora = optional_section(
      "lora",
      "Train small low-rank matrices (LoRA) next to frozen weights. Without this section (`lora: null`) all "
      "weights are trained; `lora: {}` turns LoRA on with the defaults below.",
      {key(&L::r, "r", OnResume::fixes_run, "Rank of the LoRA matrices.").at_least(1).at_most(16384),
       key(&L::lora_alpha, "lora_alpha", OnResume::fixes_run,
           "Scale of the LoRA output. The output is multiplied by lora_alpha / r, or with use_rslora by "
           "lora_alpha / sqrt(r).")
           .above(0)
           .at_most(1e6),
       key(&L::lora_dropout, "lora_dropout", OnResume::is_logged,
           "Dropout on the input of the LoRA matrices.")
           .at_least(0)
           .below(1),
       key(&L::target_modules, "target_modules", OnResume::fixes_run,
           "Linear layers that get LoRA matrices. A list of name endings ([q, v]), one regular expression "
           "for the whole name, or all-linear (every linear layer except the output head). Empty ([]): "
           "PEFT's "
           "default for the model, which is q and v for T5, q_proj and v_proj for decoders (Phi-3: "
           "qkv_proj).")
           .such_as({"all-linear"}),
       key(&L::exclude_modules, "exclude_modules", OnResume::fixes_run,
           "Modules that get no LoRA matrices even if target_modules names them. A list of name endings, or "
           "one regular expression for the whole name."),
       key(&L::layers_to_transform, "layers_to_transform", OnResume::fixes_run,
           "Indices of the layers that get LoRA matrices. One index or a list, counted from 0; empty: all "
           "layers. Only together with a list in target_modules.")
           .at_least(0)
           .at_most(100000),
       key(&L::layers_pattern, "layers_pattern", OnResume::fixes_run,
           "Name of the list of layers in the model's module names. For example layers or block; empty: "
           "found automatically. Only together with layers_to_transform."),
       key(&L::rank_pattern, "rank_pattern", OnResume::fixes_run,
           "Ranks that differ from r. A mapping from name endings, or regular expressions for them, to "
           "ranks. The first match counts: {q_proj: 16, \"layers.0.*\": 4}.")
           .at_least(1)
           .at_most(16384),
       key(&L::alpha_pattern, "alpha_pattern", OnResume::fixes_run,
           "Scales that differ from lora_alpha. Written like rank_pattern.")
           .above(0)
           .at_most(1e6),
       key(&L::use_rslora, "use_rslora", OnResume::fixes_run,
           "Use the rank-stabilised scale, lora_alpha / sqrt(r)."),
       key(&L::use_dora, "use_dora", OnResume::fixes_run,
           "Also train the magnitude of each output (DoRA). Slower than LoRA, because the norms of the "
           "weights are computed again in every step."),
       key(&L::modules_to_save, "modules_to_save", OnResume::fixes_run,
           "Modules that are trained and saved in full, in addition to the LoRA matrices. A list of name "
           "endings; as in PEFT, norm also matches input_layernorm."),
       key(&L::adapter, "adapter", OnResume::fixes_run_by_content,
           "Directory of a PEFT adapter to start from, or its name on the Hugging Face Hub. Its rank, scale "
           "and target "
           "modules are used.")
           .path()});
  // An adapter brings its own.
  return idle_but("adapter", {.key = "lora.adapter", .values = {""}, .among = false}, std::move(lora));
}

Section training_section() {
  using T = TrainingConfig;
  return section(
      "training", "How long to train, and how the work of one update is split.",
      {key(&T::batch_size, "batch_size", OnResume::may_change,
           "Micro-batch size: how much goes through the model at once. Counted in samples of full length: a "
           "micro-batch has at most batch_size x max_source_length tokens (and the same for targets; for a "
           "decoder batch_size x max_length), so it holds more samples when they are short. Together with "
           "effective_batch_size it changes memory and speed only, never the result. fit: 8, or where the "
           "memory plan says that this does not fit, the size that is fastest of those that do "
           "(docs/memory.md). "
           "auto: the size that is fastest according to the memory plan, with effective_batch_size "
           "unchanged.")
           .default_written("fit")
           .at_least(1)
           .at_most(1e6)
           .in("samples"),
       key(&T::gradient_accumulation_steps, "gradient_accumulation_steps", OnResume::may_change,
           "Micro-batches per update. An update then has batch_size x gradient_accumulation_steps samples. "
           "Set either this or effective_batch_size.")
           .at_least(1)
           .at_most(1e6),
       key(&T::effective_batch_size, "effective_batch_size", OnResume::fixes_run_by_content,
           "Samples per update. Unlike with gradient_accumulation_steps, the update stays the same when "
           "batch_size changes. Default where batch_size or gradient_accumulation_steps is given: their "
           "product.")
           .at_least(1)
           .at_most(1e7)
           .in("samples")
           .default_where(
               {not_given("training.batch_size"), not_given("training.gradient_accumulation_steps")}, "16")
           .default_where({not_given("training.batch_size"),
                           not_given("training.gradient_accumulation_steps"), of_family(kT5)},
                          "32"),
       key(&T::num_train_epochs, "num_train_epochs", OnResume::is_logged,
           "Passes over the training data. A fraction stops inside an epoch.")
           .above(0)
           .at_most(1e6)
           .in("epochs")
           .idle_without("training.max_steps", "-1"),
       key(&T::max_steps, "max_steps", OnResume::is_logged,
           "Total number of updates. -1: as many as num_train_epochs gives.")
           .at_least(-1)
           .at_most(1e10)
           .in("steps"),
       key(&T::max_hours, "max_hours", OnResume::may_change,
           "Time limit for this start of the run. The run saves a checkpoint and ends with exit code 75 "
           "before it takes longer; the same command resumes it. 0: no limit.")
           .at_least(0)
           .at_most(1e6)
           .in("hours"),
       key(&T::micro_batching, "micro_batching", OnResume::may_change,
           "How the samples of an update are split into micro-batches. tokens: ordered by length, with "
           "little padding. samples: batch_size samples each, in order."),
       key(&T::max_grad_norm, "max_grad_norm", OnResume::is_logged,
           "Gradient clipping: gradients with a larger norm are scaled down to this norm. 0: no clipping.")
           .at_least(0)
           .default_with("optimizer.name", "adafactor", "0"),
       key(&T::max_bad_steps, "max_bad_steps", OnResume::may_change,
           "Steps in a row with a NaN or infinite loss or gradient after which the run ends with exit code "
           "7. Such a step is skipped, and its samples are named. 0: the first one ends the run.")
           .at_least(0)
           .at_most(1e10)
           .in("steps"),
       key(&T::eval_strategy, "eval_strategy", OnResume::may_change,
           "When to evaluate on data.eval. Every eval_steps updates, after every epoch, or never. Default "
           "where data.eval is given, which auto asks for: steps if eval_steps is given too, else epoch.")
           .default_called("auto"),
       key(&T::eval_steps, "eval_steps", OnResume::may_change,
           "Updates between evaluations. For eval_strategy: steps.")
           .at_least(1)
           .at_most(1e10)
           .in("steps")
           .contradicts("training.eval_strategy", "steps"),
       key(&T::eval_batch_size, "eval_batch_size", OnResume::may_change,
           "Like batch_size, but for evaluation. Default: batch_size.")
           .at_least(1)
           .at_most(1e6)
           .in("samples")
           .idle_with("training.eval_strategy", {"no"}),
       key(&T::load_best_model_at_end, "load_best_model_at_end", OnResume::may_change,
           "Save the weights of the best evaluation as the result. Each evaluation that is better than all "
           "earlier ones is then followed by a checkpoint."),
       key(&T::metric_for_best_model, "metric_for_best_model", OnResume::may_change,
           "Which number of an evaluation decides what is best. loss, perplexity, token_accuracy, of "
           "preferences loss, reward_accuracy or reward_margin, of classes accuracy or f1, of numbers mae, "
           "pearson or spearman, or a score of generated answers: "
           "exact_match, "
           "f1, rouge1, rouge2, rougeL, bleu, chrf, ter, json_valid, json_match, json_fields. Lower is "
           "better "
           "for loss, perplexity, mae and ter, higher for the others.")
           .matching(
               "^(eval_)?(loss|perplexity|token_accuracy|reward_accuracy|reward_margin|accuracy|mae|pearson|"
               "spearman|exact_match|f1|"
               "rouge1|rouge2|rougeL|bleu|chrf|ter|json_valid|json_match|json_fields)$",
               "a number that an evaluation gives, such as loss or rougeL")
           .idle_with("training.eval_strategy", {"no"}),
       key(&T::early_stopping_patience, "early_stopping_patience", OnResume::may_change,
           "End the run after this many evaluations in a row without a better one. 0: off.")
           .at_least(0)
           .at_most(1e10)
           .in("evaluations"),
       key(&T::logging_steps, "logging_steps", OnResume::may_change, "Updates between progress lines.")
           .at_least(1)
           .at_most(1e10)
           .in("steps"),
       key(&T::num_workers, "num_workers", OnResume::may_change, "Threads that read and tokenize the data.")
           .at_least(1)
           .at_most(256)
           .in("threads"),
       key(&T::num_threads, "num_threads", OnResume::may_change,
           "Threads for computing on the CPU. 0: OMP_NUM_THREADS, else one per core.")
           .at_least(0)
           .at_most(1024)
           .in("threads"),
       key(&T::cpu_products, "cpu_products", OnResume::is_logged,
           "What multiplies matrices on the CPU. mkl: MKL in fp32, to which bf16 is widened. onednn: oneDNN "
           "in both types. by_type: MKL in fp32, in bf16 kernels of this program for AMX, or oneDNN where "
           "there is none. builtin: kernels of this program for AVX2 and AVX-512, also in bf16 with AMX or "
           "on AMD with AVX512-BF16, elsewhere with bf16 widened to fp32 (where there is no AVX2, mkl). "
           "auto: the fastest that is known for the processor (docs/performance.md). To "
           "continue a run on another kind of processor as it began, name what its first start shows."),
       key(&T::label_smoothing, "label_smoothing", OnResume::is_logged,
           "Share of the target's weight that is spread over all tokens.")
           .at_least(0)
           .below(1),
       key(&T::z_loss, "z_loss", OnResume::is_logged,
           "Coefficient of a term that keeps the logits from drifting: the loss of a token grows by this "
           "times "
           "the square of log(Z), where Z is the sum of e^logit over the vocabulary (PaLM, T5X; 1e-4 is "
           "usual). "
           "Evaluation is without it.")
           .at_least(0)
           .below(1),
       key(&T::focal_gamma, "focal_gamma", OnResume::is_logged,
           "The exponent of focal loss: the loss of a token is multiplied by (1 - p)^focal_gamma, where p is "
           "the probability that the model gives it, so that tokens which it already knows count less (2 is "
           "usual). Evaluation is without it. 0: off.")
           .at_least(0)
           .at_most(100),
       key(&T::neftune_noise_alpha, "neftune_noise_alpha", OnResume::is_logged,
           "Noise on the embedded tokens while training (NEFTune): uniform, of up to this divided by the "
           "root "
           "of the sample's tokens times the hidden size. 5 to 15 are usual. Of an encoder-decoder only the "
           "source gets it. 0: off.")
           .at_least(0)
           .at_most(1e6),
       key(&T::dropout, "dropout", OnResume::is_logged,
           "Dropout rate of the model. Default: the one in its config.json; for preferences and "
           "rewards 0.")
           .at_least(0)
           .below(1)
           .default_where({of_preferences()}, "0")
           .default_with("objective.name", "reward", "0"),
       key(&T::tf32, "tf32", OnResume::may_change,
           "Multiply fp32 matrices in TF32 on GPUs that have it. Much faster there, but the factors have "
           "only 10 bits of mantissa.")
           .idle_with("device", {"cpu"}),
       key(&T::deterministic, "deterministic", OnResume::may_change,
           "On a GPU, add up the gradients of attention in a fixed order, so that a run gives the same bits "
           "again. Costs some time and memory in attention's backward pass, which on Hopper cuDNN does not "
           "compute then (docs/gpu.md). On the CPU it is always so.")
           .idle_with("device", {"cpu"}),
       key(&T::replay_cuts, "replay_cuts", OnResume::may_change,
           "Split each step into the same micro-batches as another run, whose metrics.jsonl is given here. "
           "For comparing runs to the last bit.")
           .path()});
}

}  // namespace

const std::vector<Section>& schema() {
  static const std::vector<Section> sections{
      model_section(),      lora_section(),      data_section(),     objective_section(), training_section(),
      evaluation_section(), optimizer_section(), save_section(),     observe_section(),   memory_section(),
      gpu_section(),        parallel_section(),  recovery_section(), notify_section(),    top_level()};
  return sections;
}

const Section* find_section(const std::string& name) {
  for (const Section& section : schema()) {
    if (section.name == name && !name.empty()) return &section;
  }
  return nullptr;
}

const Key* find_key(const std::string& section, const std::string& name) {
  for (const Key* key : keys_named(name)) {
    if (key->section == section) return key;
  }
  return nullptr;
}

const Key* find_key(const std::string& full_name) {
  const size_t dot = full_name.find('.');
  if (dot == std::string::npos) return find_key("", full_name);
  return find_key(full_name.substr(0, dot), full_name.substr(dot + 1));
}

std::vector<const Key*> keys_named(const std::string& name) {
  std::vector<const Key*> found;
  for (const Section& section : schema()) {
    for (const Key& key : section.keys) {
      if (key.name == name) found.push_back(&key);
    }
  }
  return found;
}

const Key* key_by_short_name(const std::string& name) {
  // steps=100 would be save.steps, where most people mean training.max_steps.
  static constexpr std::array kUnclearAlone{"command", "events",   "format",      "minutes", "path",
                                            "steps",   "strategy", "temperature", "top_k"};
  const std::vector<const Key*> keys = keys_named(name);
  if (keys.size() != 1) return nullptr;
  const bool unclear = std::ranges::find(kUnclearAlone, name) != kUnclearAlone.end();
  return unclear && !keys[0]->section.empty() ? nullptr : keys[0];
}

const std::vector<std::pair<std::string, std::string>>& alternatives() {
  static const std::vector<std::pair<std::string, std::string>> pairs{
      {"training.gradient_accumulation_steps", "training.effective_batch_size"},
      {"optimizer.warmup_steps", "optimizer.warmup_ratio"}};
  return pairs;
}

}  // namespace trainer::config
