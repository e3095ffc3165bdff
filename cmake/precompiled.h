// What nearly every file on LibTorch includes, compiled once (20 s); to load it takes 2.3 s a unit where parsing takes 6
// to 9 s. Files include what they use all the same, so that they compile without it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
