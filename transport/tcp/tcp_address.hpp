// How a rank tells others where it listens: "10.0.0.1:5000", or with rails, all at the same port,
// "10.0.0.1:5000|10.1.0.1:5000". Streams go to them in turn.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace pith {

// The host to listen on for all of them.
std::string_view listening_host(std::string_view host, std::span<const std::string> rails);
// `listener`: where that is, "0.0.0.0:5000".
std::string address_with_rails(std::string_view listener, std::string_view host,
                               std::span<const std::string> rails);
// The address for a stream, among the first `most`: a rank uses no more rails than it has itself.
std::string_view rail_of(std::string_view text, int stream, std::size_t most);
// Of the first address.
std::string_view host_of(std::string_view text);

}  // namespace pith
