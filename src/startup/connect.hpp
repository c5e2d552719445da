// Creates communicators: ranks meet at the root and connect, or are threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "startup/bootstrap.hpp"
#include "startup/start_log.hpp"
#include "startup/unique_id.hpp"

namespace pith {

// Collective over the holders of `id`. `cancellation` may be null. `table`: the transports for this
// communicator and its children; must outlive them. `obstacle`: why it cannot succeed, as far as
// this process knows from elsewhere; may be empty; asked until the new control plane knows itself.
Expected<std::unique_ptr<Communicator>> make_communicator(
    const Settings& settings, const UniqueId& id, int rank, int ranks,
    const std::shared_ptr<const Cancellation>& cancellation,
    TransportTable table = transport_table(), std::function<Error()> obstacle = {});
// All ranks are in this process.
Expected<std::vector<std::unique_ptr<Communicator>>> make_communicators(int ranks);

// Collective. Sets up the links from what the members exchange by `gatherer`, and at last registers
// the communicator with the control plane.
Error connect(Communicator& made, Gatherer& gatherer, const Settings& settings, StartLog& log);
Error connect_threads(Communicator& made, Gatherer& gatherer, const Settings& settings,
                      StartLog& log);

}  // namespace pith
