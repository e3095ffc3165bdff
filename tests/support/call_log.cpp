#include "support/call_log.h"

#include <sstream>

#include <ATen/core/Tensor.h>

namespace trainer {
namespace {

std::vector<std::string>* logged = nullptr;

void append(std::ostream& out, const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor tensor = value.toTensor();
    if (tensor.defined()) out << ' ' << tensor.scalar_type() << tensor.sizes() << tensor.strides();
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) append(out, element);
  } else if (value.isInt() || value.isDouble() || value.isBool()) {
    out << ' ' << value;
  }
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  if (logged == nullptr) return nullptr;
  std::ostringstream call;
  call << function.name();
  for (const c10::IValue& input : function.inputs()) append(call, input);
  logged->push_back(call.str());
  return nullptr;
}

}  // namespace

CallLog::CallLog() {
  logged = &calls_;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(enter).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

CallLog::~CallLog() {
  at::removeCallback(handle_);
  logged = nullptr;
}

}  // namespace trainer
