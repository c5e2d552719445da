// The transports that PITH_TRANSPORT can name, best first. transport/transport_table.cpp has them
// in the same order.
#pragma once

#include <array>
#include <string_view>

namespace pith {

inline constexpr std::array<std::string_view, 5> transport_names = {"local", "shm", "verbs", "ucx",
                                                                    "tcp"};

}  // namespace pith
