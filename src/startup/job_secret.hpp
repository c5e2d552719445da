// The secret of a job started by environment variables: PITH_SECRET or the file PITH_SECRET_FILE.
#pragma once

#include <string>
#include <string_view>

#include "settings/settings.hpp"
#include "transport/handshake.hpp"

namespace pith {

// What the user gave; empty: nothing. Never log or store it.
Expected<std::string> secret_text(const Settings& settings);

// Differs between jobs that share a text, so proofs from one job are not valid in another.
Secret derive_secret(std::string_view text, std::string_view job);

}  // namespace pith
