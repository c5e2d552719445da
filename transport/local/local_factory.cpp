#include "transport/transport_factory.hpp"

namespace pith {

extern const TransportFactory local_factory;
constinit const TransportFactory local_factory = {
    .name = "local",
    .medium = Medium::threads,
    .usable = [](const ListenPlace&) -> Expected<std::string> {
      return std::string("ranks that are threads of one process");
    },
};

}  // namespace pith
