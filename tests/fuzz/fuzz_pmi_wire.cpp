// What a launcher answers over PMI-1.
#include <sys/socket.h>

#include "core/clock.hpp"
#include "fuzz_target.hpp"
#include "startup/pmi_wire.hpp"
#include "transport/socket.hpp"

namespace pith::fuzz {

void run(std::span<const std::uint8_t> input) {
  int ends[2] = {-1, -1};
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor ours(ends[0]);
  const Descriptor launcher(ends[1]);
  // All answers lie there before the questions; after them the line is closed.
  const std::string_view answers = text_of(input);
  static_cast<void>(::send(launcher.get(), answers.data(), answers.size(), MSG_DONTWAIT));
  ::shutdown(launcher.get(), SHUT_WR);
  const std::uint64_t now = monotonic_ns();
  Expected<PmiWire> wire = PmiWire::open(ours.get(), now);
  if (!wire) return;
  static_cast<void>(wire->put("key", "value", now));
  static_cast<void>(wire->barrier(now));
  static_cast<void>(wire->get("key", now));
}

std::vector<std::string> seeds() {
  const std::string opening =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
      "cmd=my_kvsname kvsname=kvs_1\n";
  return {opening +
              "cmd=put_result rc=0 msg=success\ncmd=barrier_out\n"
              "cmd=get_result rc=0 msg=success value=127.0.0.1:5000\ncmd=finalize_ack\n",
          opening + "cmd=put_result rc=-1 msg=duplicate\n"};
}

}  // namespace pith::fuzz
