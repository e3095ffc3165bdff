#include "memory/memory_phase.h"

#include <utility>

namespace trainer {
namespace {

thread_local MemoryPhase current = MemoryPhase::forward;

}  // namespace

MemoryPhase memory_phase() { return current; }

InPhase::InPhase(MemoryPhase phase) : before_(std::exchange(current, phase)) {}
InPhase::~InPhase() { current = before_; }

}  // namespace trainer
