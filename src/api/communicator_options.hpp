// A pithConfig_t as far as its caller knew it.
#pragma once

#include <optional>
#include <string>

#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

struct CommunicatorOptions {
  bool blocking = true;
  std::string name;
  std::optional<int> timeout_s;  // in place of the setting
};

// `options`: what holds where `given` is null or leaves something open.
Expected<CommunicatorOptions> read_config(const char* function, const pithConfig_t* given,
                                          CommunicatorOptions options);

}  // namespace pith::api
