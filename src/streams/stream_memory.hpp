// Where the memory of a call is, a device's or the host's, and which device its stream belongs to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/call_args.hpp"
#include "core/error.hpp"

namespace pith {

class Compute;
namespace cuda {
class Device;
struct Driver;
}  // namespace cuda

// Null where streams can be used; else why not.
Error check_streams();
// Device memory as far as the process knew the CUDA driver when it last looked for it, or has used
// a stream; costs a load where it did not. To look costs some 10 ns: CUDA may come up at any time.
void look_for_device_memory();
// The CUDA devices that this process computes on, by cuda::uuid_of: this thread's context's, else
// all whose primary context is in use. Loads nothing.
std::vector<std::string> devices_in_use();
// This thread's CUDA context; null: none, or the process does not use CUDA. Loads nothing.
void* current_context();
// Makes a CUDA context current on this thread for the length of a scope; null: leaves it alone.
class CurrentContext {
 public:
  explicit CurrentContext(void* context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};
Expected<bool> is_device_memory(const void* memory);
// Whether the call has buffers: that of an empty tensor has none.
bool names_memory(const CallArgs& args);
// What a call on a stream is refused for otherwise: one buffer is pageable host memory, the other
// is not. Precondition, here and below: streams can be used.
bool are_apart(const void* send, const void* recv);
// The capture that a call would be part of; none where its stream is not being captured.
Expected<std::optional<std::uint64_t>> capture_of(const CallArgs& args, void* stream);
// What NULL stands for where the memory is a device's.
void* legacy_stream();

// Whose stream it is. A default stream is that of the memory's context; where no memory tells, the
// current context's.
Expected<cuda::Device*> device_of(const CallArgs& args, void* stream);
// Which memory the call runs on: what the device reaches, or plain host memory. `device`: for
// compressed tensors that are there.
Error place(CallArgs& args, const cuda::Driver& driver, Compute& device);
// Precondition: it has been placed.
bool uses_device(const CallArgs& args);

}  // namespace pith
