// A rank's end of an edge of the control tree: a connection, or several one after the other where
// it goes on over another when its own has broken (transport/tcp/tcp_resumption.hpp).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "control/control_frames.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_resumption.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

// What a connection is for, in place of a stream's number. Links are numbered by the higher rank,
// which begins them: of a rank's links one after the other, each goes on with its own bytes.
struct ControlPurpose {
  enum class What : std::uint8_t {
    begins,   // a link
    goes_on,  // as another connection of that link
    asks,     // for one that does
  };

  static ControlPurpose of(int stream) {
    return {static_cast<What>(stream % kinds), stream / kinds};
  }
  int stream() const { return link * kinds + static_cast<int>(what); }

  What what;
  int link;

  static constexpr int kinds = 4;  // 3: none
  static constexpr int links = 1 << 28;
};

struct ControlLink {
  enum class State : std::uint8_t {
    connecting,
    shaking,
    open,
    broken,  // another connection is to be begun, not before `not_before_ns`
    asking,  // the peer, which connects, has been asked for another one
  };

  void end(std::string how) { ended = std::move(how); }
  // Sends what is queued, if it is open; false where the connection is broken: the next receive()
  // tells why.
  bool write();
  // As recv(). EBADMSG: see fault().
  ssize_t receive(char* into, std::size_t size);
  bool wants_to_write() const;
  // Whether a goodbye is the last that was to be sent, and the peer will have it.
  bool has_left() const;
  bool suspended() const { return resumption && resumption->suspended(); }
  // Null, or what is wrong with what has come.
  const char* fault() const { return resumption ? resumption->fault() : nullptr; }
  // The peer has given this link up, or knows nothing of it.
  bool dismissed() const { return resumption && resumption->dismissed(); }
  // The connection has ended: errno, or 0. True: the link goes on over another one, if that is made
  // before the deadline.
  bool suspend(int cause, std::uint64_t deadline);
  void try_again();
  void resume(Descriptor connection);

  int rank = -1;   // -1: not authenticated yet
  int number = 0;  // see ControlPurpose
  Descriptor fd;
  Handshake handshake;
  bool handshake_writes = false;  // it waits for room to write
  State state = State::shaking;
  std::uint64_t deadline_ns = 0;  // by when it must be open
  std::uint64_t not_before_ns = 0;
  ControlFrames in;
  std::string out;
  std::size_t out_done = 0;
  bool writing = false;  // watched for writing
  bool leaving = false;  // a goodbye is at the end of `out`
  bool heard = false;    // a message has arrived
  TcpSilence silence;
  std::unique_ptr<TcpResumption> resumption;  // null: the end of the connection is its end
  std::string ended;                          // why it has ended; empty while it has not

 private:
  ssize_t send_some(const void* data, std::size_t size) const;
  ssize_t receive_some(void* into, std::size_t size) const;
  bool catch_up();
};

}  // namespace pith
