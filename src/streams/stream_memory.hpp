// Finds out whether the memory of a call is a device's or the host's, and the device of its stream.
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

// No error if streams can be used, else the reason.
Error check_streams();
// Whether the process has loaded the CUDA driver; from then on is_device_memory() knows device
// memory. Costs some 20 ns; called often, because a program may load CUDA at any time.
bool look_for_device_memory();
// The CUDA devices that this process computes on, as cuda::uuid_of: that of this thread's context,
// else all whose primary context is in use. Loads no library.
std::vector<std::string> devices_in_use();
// This thread's CUDA context; null: none, or the process does not use CUDA. Loads no library.
void* current_context();
// Makes a CUDA context current on this thread for a scope; null: changes nothing.
class CurrentContext {
 public:
  explicit CurrentContext(void* context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool pushed_ = false;
};
// Without a known CUDA driver, from a look or from the use of a stream, false; costs one load then.
Expected<bool> is_device_memory(const void* memory);
// Whether the call names buffers; one on an empty tensor does not.
bool names_memory(const CallArgs& args);
// Whether one buffer is pageable host memory and the other is not, for which a call on a stream is
// refused. Precondition, here and below: streams can be used.
bool are_apart(const void* send, const void* recv);
// The capture that a call would join; empty if its stream is not being captured.
Expected<std::optional<std::uint64_t>> capture_of(const CallArgs& args, void* stream);
// The stream that NULL means for device memory.
void* legacy_stream();

// The device of the stream. A default stream belongs to the context of the call's memory, or to the
// current context if the call names none.
Expected<cuda::Device*> device_of(const CallArgs& args, void* stream);
// Sets the kind of memory on which the call runs: device-accessible or plain host memory. `device`:
// for compressed tensors in device-accessible memory.
Error place(CallArgs& args, const cuda::Driver& driver, Compute& device);
// Precondition: the arguments have been placed.
bool uses_device(const CallArgs& args);

}  // namespace pith
