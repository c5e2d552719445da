#include "transport/transport_table.hpp"

#include <iterator>

#include "settings/transport_names.hpp"

namespace pith {

// Each in <name>/<name>_factory.cpp.
extern const TransportFactory local_factory;
extern const TransportFactory shm_factory;
extern const TransportFactory verbs_factory;
extern const TransportFactory ucx_factory;
extern const TransportFactory tcp_factory;

namespace {

// In the order of transport_names.
constexpr const TransportFactory* table[] = {&local_factory, &shm_factory, &verbs_factory,
                                             &ucx_factory, &tcp_factory};
static_assert(std::size(table) == transport_names.size() && std::size(table) <= most_transports);

}  // namespace

TransportTable transport_table() { return table; }

}  // namespace pith
