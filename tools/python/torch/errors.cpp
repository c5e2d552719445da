#include "errors.hpp"

#include <string>

namespace pith_torch {

void throw_failure(pithResult_t result) {
  std::string message = pithGetLastError(nullptr);
  if (message.empty()) message = pithGetErrorString(result);
  if (result == pithInvalidArgument) C10_THROW_ERROR(ValueError, message);
  C10_THROW_ERROR(DistBackendError, message);
}

}  // namespace pith_torch
