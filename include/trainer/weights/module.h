// A tree of named parameters. Names are Hugging Face's: the path of a parameter in the tree is its name on
// disk. A model is first built as a tree of shapes, without memory; then its tensors are loaded, or put on
// `meta`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/weights/weight.h"

namespace trainer {

// A weight and the shape that the model expects. Frozen weights may lie in a mapped file; trained ones may be
// kept in a wider type than the model computes in (LoRA: fp32), so layers call `as`.
struct Parameter {
  explicit Parameter(std::vector<int64_t> expected) : shape(std::move(expected)) {}

  // The weight in the type of the computation; differentiable when it is trained.
  at::Tensor as(at::ScalarType type) const { return value.materialize(type); }
  bool trained() const { return value.requires_grad(); }
  int64_t numel() const { return c10::multiply_integers(shape); }

  std::vector<int64_t> shape;
  Weight value;             // undefined until loaded
  bool large = false;       // a linear layer's: may lie outside the device's memory while its block rests
  bool in_adapter = false;  // saved with the adapter although it is not trained
};

class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  using ParameterVisitor = std::function<void(const std::string& name, Parameter& parameter)>;
  using ModuleVisitor = std::function<void(const std::string& name, Module& module)>;
  // Calls `visit` for each parameter or module once, in the order of registration, with its full name.
  void for_each_parameter(const ParameterVisitor& visit, const std::string& prefix = "");
  void for_each_module(const ModuleVisitor& visit, const std::string& prefix = "");  // this module first

  // Sets the full name of each module below this one; call once when the tree is complete. The names are part
  // of the keys of dropout masks.
  void assign_names();
  const std::string& name() const { return name_; }
  uint64_t name_key() const { return name_key_; }

  // Call in constructors: makes a member an entry of the tree under this name.
  void add(std::string name, Parameter& parameter) { parameters_.push_back({std::move(name), &parameter}); }
  void add(std::string name, Module& child) { children_.push_back({std::move(name), &child}); }

 private:
  std::vector<std::pair<std::string, Parameter*>> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::string name_;
  uint64_t name_key_ = 0;
};

enum class BlockPass {
  forward,
  backward,  // the block runs again, and then its gradients are computed
};

// Called before a block runs. The result lives until the block has run, in backward until its gradients are
// computed.
using EnterBlock = std::function<std::shared_ptr<void>(BlockPass pass)>;

}  // namespace trainer
