// NCCL's files of settings: lines of NAME=value that count where the environment does not have the
// name.
#pragma once

#include <span>
#include <string_view>

#include "settings/settings.hpp"

namespace pith::nccl {

// The first line of a name counts; # begins a line that says nothing.
Variables variables_of(std::string_view text);

// Of the file that NCCL_CONF_FILE names, else of ~/.nccl.conf; then of /etc/nccl.conf. Those that
// are not there have none.
Variables variables_from_files();

// Of these names, in the environment or else in the files.
Variables variables_named(std::span<const std::string_view> names, const Variables& from_files);

}  // namespace pith::nccl
