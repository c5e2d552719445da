// How a communicator gets its handle: at once, in the background, or at the end of a group.
#pragma once

#include <functional>
#include <memory>

#include "api/comm_handle.hpp"
#include "api/communicator_options.hpp"
#include "core/error.hpp"
#include "startup/unique_id.hpp"

namespace pith::api {

// Makes the communicator behind a handle, perhaps on a thread of its own.
using Make = std::function<Expected<std::unique_ptr<Communicator>>()>;

// Without a communicator yet.
std::unique_ptr<pithComm> new_handle(const CommunicatorOptions& options);

// With blocking = 0 the handle is there at once, and the rest follows; in a group that this thread
// has open the handle is there, too. `make` looks at `making`; `function`: a literal.
Error create(const char* function, pithComm_t* comm, const CommunicatorOptions& options,
             const Make& make, const std::shared_ptr<Cancellation>& making);

// A communicator of the holders of the id, as one of them.
Error create_from_id(const char* function, pithComm_t* comm, const UniqueId& id, int rank,
                     int nranks, const CommunicatorOptions& options);

// A child of `comm`, for streams of the same context: this thread's may be another, or none.
// With blocking = 0 its handle appears when comm is ready again.
Error create_child(pithComm_t comm, pithComm_t* child, const CommunicatorOptions& options,
                   const Make& make);

// Whether complete_communicators_by() has been called: this is libnccl.so.2.
bool has_layer_on_top();

}  // namespace pith::api
