// A software network behind the functions of libibverbs, for ranks that are threads of one process.
// It keeps the rules that the transport must rely on: a reliable connection delivers in order and
// once; what a queue pair that is not ready to receive gets is lost, and its sender fails after
// some time; keys, ranges and protection domains are checked; a stopped pair ends all that was
// posted; a send queue has room again when a completion of a later request has been polled; a
// completion queue that overflows throws.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "transport/verbs/verbs_library.hpp"

namespace pith::test {

struct FakeVerbs {
  int devices = 1;
  std::uint32_t request_bytes = 1u << 20;   // the longest message of a work request
  std::uint64_t gives_up_ns = 300'000'000;  // a sender whose packets are lost fails after this
  // Work requests that each look at a completion queue carries out; what is left stays on its way.
  int requests_a_look = 1 << 20;
  bool registers = true;  // false: memory registration beyond the transport's own buffers fails
  int refusal = ENOMEM;   // ...with this errno
  bool polls_fail = false;
  int cut_device = -1;  // whose packets are lost, by its number
  std::uint32_t inlined = 256;

  // Requires that none of its objects exist.
  static FakeVerbs& instance();
  // While other threads use them.
  static void change(const std::function<void(FakeVerbs&)>& by);
  static const VerbsLibrary& library();
  // Objects that have been made and not destroyed, of all kinds.
  static int objects();
  // Bytes of all registrations, or of those by which peers may write to this byte.
  static std::size_t registered(const void* byte = nullptr);
  // Stops all queue pairs of data connections with an error, as a failing device does.
  static void break_pairs();
  // An asynchronous event of the first device.
  static void tell(ibv_event_type type, int port = 1);
};

}  // namespace pith::test
