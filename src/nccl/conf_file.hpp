// NCCL's configuration files: lines NAME=value, which apply where the environment does not set the
// name.
#pragma once

#include <span>
#include <string_view>

#include "settings/settings.hpp"

namespace pith::nccl {

// The first line for a name counts; lines that begin with # are comments.
Variables variables_of(std::string_view text);

// Variables from the file in NCCL_CONF_FILE, else ~/.nccl.conf; then from /etc/nccl.conf. Missing
// files are ignored.
Variables variables_from_files();

// The variables of these names, from the environment or else from the files.
Variables variables_named(std::span<const std::string_view> names, const Variables& from_files);

}  // namespace pith::nccl
