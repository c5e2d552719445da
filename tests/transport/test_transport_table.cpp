// The table of transports against the names that PITH_TRANSPORT takes.
#include <algorithm>

#include "catch.hpp"
#include "settings/transport_names.hpp"
#include "transport/transport_table.hpp"

using namespace pith;

TEST_CASE("the table has every transport that can be named, in the order of preference") {
  const TransportTable table = transport_table();
  CHECK(std::ranges::equal(table, transport_names, {}, &TransportFactory::name));
  for (const TransportFactory* transport : table) {
    INFO(transport->name);
    CHECK(transport->usable != nullptr);
    CHECK((transport->make != nullptr) == (transport->medium != Medium::threads));
  }
}
