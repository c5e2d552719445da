// All transports that ranks can use, best first.
#pragma once

#include <cstddef>
#include <span>

#include "transport/transport_factory.hpp"

namespace pith {

using TransportTable = std::span<const TransportFactory* const>;
inline constexpr std::size_t most_transports = 8;

TransportTable transport_table();

}  // namespace pith
