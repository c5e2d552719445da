#include "collectives/varying/varying_sum.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "collectives/strands.hpp"
#include "core/kernel_args.hpp"

namespace pith {

namespace {

constexpr std::uint16_t scatter_lane = 0;
constexpr std::uint16_t gather_lane = 1;
constexpr std::string_view unreadable = "values that cannot be decoded";

// A message as received, read from its beginning.
struct Received {
  const std::byte* at = nullptr;
  std::size_t left = 0;

  // False: it is too short.
  bool read_head(VaryingHead& head) {
    if (left < sizeof head) return false;
    std::memcpy(&head, at, sizeof head);
    return skip(sizeof head);
  }
  bool skip(std::size_t bytes) {
    if (bytes > left) return false;
    at += bytes;
    left -= bytes;
    return true;
  }
};

std::size_t encode(Call& call, const VaryingCoding& coding, const float* in, std::size_t count,
                   std::byte* out, float* decoded) {
  std::size_t written = 0;
  call.run<EncodeVaryingKernel>({coding, in, count, out, &written, decoded});
  return written;
}

// False: the message is malformed.
bool decode(Call& call, const VaryingCoding& coding, Received& message, std::size_t count,
            float* out) {
  std::size_t read = 0;
  call.run<DecodeVaryingKernel>({coding, message.at, message.left, count, out, &read});
  return read != DecodeVaryingKernel::malformed && message.skip(read);
}

std::size_t put_head(std::uint32_t flags, std::byte* out) {
  const VaryingHead head{flags};
  std::memcpy(out, &head, sizeof head);
  return sizeof head;
}

// One parcel's exchange on this rank.
struct VaryingExchange {
  VaryingExchange(Call& call, const VaryingParcel& whole, std::uint32_t number,
                  std::uint32_t& all_flags)
      : parcel(whole),
        step(number),
        flags(all_flags),
        own(whole.segment(call.rank(), call.size())),
        room(whole.most_bytes(own)),
        messages(call.host_compute(), static_cast<std::size_t>(call.size()) * room),
        reading(call.host_compute(), static_cast<std::size_t>(call.size()) * sizeof(Received)),
        next(call.host_compute(), VaryingParcel::at_once * sizeof(float)),
        sum(call.host_compute(), room) {}

  const VaryingCoding& coding() const { return parcel.coding(); }
  Received& received(int rank) const {
    return reinterpret_cast<Received*>(reading.bytes().data)[rank];
  }
  float* values() const { return reinterpret_cast<float*>(next.bytes().data); }

  const VaryingParcel& parcel;
  std::uint32_t step;
  std::uint32_t& flags;
  Range own;         // this rank's segment
  std::size_t room;  // of a message with values of it
  Scratch messages;
  Scratch reading;
  Scratch next;  // values to be added
  Scratch sum;   // coded
  std::size_t sum_bytes = 0;
};

void negate(Call& call, const float* in, std::size_t count, float* out) {
  call.run<ConvertKernel>({reinterpret_cast<std::byte*>(out), DType::f32,
                           reinterpret_cast<const std::byte*>(in), DType::f32, count, -1});
}

// Codes this rank's values for their owner, and notes that they leave.
std::size_t encode_own(Call& call, const VaryingExchange& exchange, Range segment, std::byte* out) {
  const VaryingParcel& parcel = exchange.parcel;
  std::size_t bytes = put_head(exchange.flags, out);
  parcel.for_each_part(segment, [&](const VaryingSlice& part) {
    float* const change = exchange.coding().keeps_rest ? parcel.change(part) : nullptr;
    const std::size_t n = part.range.size;
    bytes += encode(call, exchange.coding(), parcel.own(part), n, out + bytes, change);
    if (change) negate(call, change, n, change);
  });
  return bytes;
}

Task<Error> send_to_owner(Call& call, VaryingExchange& exchange, int distance) {
  const int to = wrap(call.rank() + distance, call.size());
  const Range segment = exchange.parcel.segment(to, call.size());
  const Scratch message(call.host_compute(), exchange.parcel.most_bytes(segment));
  const std::size_t bytes = encode_own(call, exchange, segment, message.bytes().data);
  exchange.parcel.args().traffic->sent += bytes;
  co_return co_await call.send(to, scatter_lane, exchange.step, message.bytes().part(0, bytes));
}

Task<Error> receive_for_sum(Call& call, VaryingExchange& exchange, int distance) {
  const int from = wrap(call.rank() - distance, call.size());
  const Bytes room =
      exchange.messages.bytes().part(static_cast<std::size_t>(from) * exchange.room, exchange.room);
  const Expected<std::size_t> came =
      co_await call.recv_some(from, scatter_lane, exchange.step, room);
  if (!came) co_return came.error();
  exchange.parcel.args().traffic->received += *came;
  exchange.received(from) = {room.data, *came};
  co_return Error();
}

// These return false if what `who` has sent cannot be read.
bool read_heads(const Call& call, VaryingExchange& exchange, int& who) {
  for (who = 0; who < call.size(); ++who) {
    VaryingHead head;
    if (who == call.rank()) continue;
    if (!exchange.received(who).read_head(head)) return false;
    exchange.flags |= head.flags;
  }
  return true;
}

bool add_part(Call& call, const VaryingExchange& exchange, const VaryingSlice& part, int& who) {
  const std::size_t n = part.range.size;
  auto* const sums = reinterpret_cast<std::byte*>(exchange.parcel.sums(part));
  for (who = 0; who < call.size(); ++who) {
    const float* values = exchange.values();
    if (who == call.rank()) {
      values = exchange.parcel.own(part);
    } else if (!decode(call, exchange.coding(), exchange.received(who), n, exchange.values())) {
      return false;
    }
    const auto* const more = reinterpret_cast<const std::byte*>(values);
    if (who == 0) {
      call.run<CopyKernel>({sums, more, n * sizeof(float)});
    } else {
      call.run<ReduceKernel>({sums, sums, more, n, DType::f32, Op::sum});
    }
  }
  return true;
}

// Codes the sums, and puts in their place what they are decoded to.
std::size_t encode_sums(Call& call, const VaryingExchange& exchange, const VaryingSlice& part,
                        std::byte* out) {
  const VaryingCoding& coding = exchange.coding();
  const std::size_t n = part.range.size;
  float* const sums = exchange.parcel.sums(part);
  if (!coding.keeps_rest) return encode(call, coding, sums, n, out, sums);
  const float* const decoded = exchange.values();
  const std::size_t bytes = encode(call, coding, sums, n, out, exchange.values());
  const float* const own = exchange.parcel.own(part);
  float* const change = exchange.parcel.change(part);
  for (std::size_t i = 0; i < n; ++i) {
    // A sum beyond float32 is gone.
    change[i] = std::isfinite(decoded[i]) ? (sums[i] - decoded[i]) - own[i] : -own[i];
    sums[i] = decoded[i];
  }
  return bytes;
}

// Adds up this rank's segment, and codes the sum.
bool add_up(Call& call, VaryingExchange& exchange, int& who) {
  if (!read_heads(call, exchange, who)) return false;
  std::byte* const out = exchange.sum.bytes().data;
  exchange.sum_bytes = put_head(exchange.flags, out);
  bool is_readable = true;
  exchange.parcel.for_each_part(exchange.own, [&](const VaryingSlice& part) {
    is_readable = is_readable && add_part(call, exchange, part, who);
    if (!is_readable) return;
    exchange.sum_bytes += encode_sums(call, exchange, part, out + exchange.sum_bytes);
  });
  if (!is_readable) return false;
  for (who = 0; who < call.size(); ++who) {
    if (who != call.rank() && exchange.received(who).left > 0) return false;
  }
  return true;
}

Task<Error> send_sum(Call& call, VaryingExchange& exchange, int distance) {
  exchange.parcel.args().traffic->sent += exchange.sum_bytes;
  const int to = wrap(call.rank() + distance, call.size());
  co_return co_await call.send(to, gather_lane, exchange.step,
                               exchange.sum.bytes().part(0, exchange.sum_bytes));
}

Task<Error> receive_sum(Call& call, VaryingExchange& exchange, int distance) {
  const VaryingParcel& parcel = exchange.parcel;
  const int from = wrap(call.rank() - distance, call.size());
  const Range segment = parcel.segment(from, call.size());
  const Scratch room(call.host_compute(), parcel.most_bytes(segment));
  const Expected<std::size_t> came =
      co_await call.recv_some(from, gather_lane, exchange.step, room.bytes());
  if (!came) co_return came.error();
  parcel.args().traffic->received += *came;
  Received message{room.bytes().data, *came};
  VaryingHead head;
  bool is_readable = message.read_head(head);
  parcel.for_each_part(segment, [&](const VaryingSlice& part) {
    is_readable =
        is_readable && decode(call, exchange.coding(), message, part.range.size, parcel.sums(part));
  });
  if (!is_readable || message.left > 0) co_return malformed(call, from, unreadable);
  exchange.flags |= head.flags;
  co_return Error();
}

// Sends and receives at the same time: a message may not leave before its receiver waits for it.
using Work = Task<Error> (*)(Call& call, VaryingExchange& exchange, int distance);
Task<Error> run_half(Call& call, VaryingExchange& exchange, Work send, Work receive) {
  std::array<Task<Error>, 2> both;
  both[0] = with_every_other(
      call, [&call, &exchange, send](int distance) { return send(call, exchange, distance); });
  both[1] = with_every_other(call, [&call, &exchange, receive](int distance) {
    return receive(call, exchange, distance);
  });
  co_return co_await when_all(std::span(both));
}

// A rank alone delivers its values as they are.
void deliver_own(Call& call, const VaryingParcel& parcel) {
  parcel.for_each_part({0, parcel.count()}, [&](const VaryingSlice& part) {
    const std::size_t bytes = part.range.size * sizeof(float);
    const float* const own = parcel.own(part);
    call.run<CopyKernel>({reinterpret_cast<std::byte*>(parcel.sums(part)),
                          reinterpret_cast<const std::byte*>(own), bytes});
    if (parcel.coding().keeps_rest) negate(call, own, part.range.size, parcel.change(part));
  });
}

}  // namespace

Task<Error> sum_varying(Call& call, const VaryingParcel& parcel, std::uint32_t step,
                        std::uint32_t& flags) {
  if (call.size() == 1) {
    deliver_own(call, parcel);
    co_return Error();
  }
  VaryingExchange exchange(call, parcel, step, flags);
  Task<Error> scattering = run_half(call, exchange, send_to_owner, receive_for_sum);
  Error error = co_await std::move(scattering);
  if (error) co_return error;
  int who = 0;
  if (!add_up(call, exchange, who)) co_return malformed(call, who, unreadable);
  Task<Error> gathering = run_half(call, exchange, send_sum, receive_sum);
  error = co_await std::move(gathering);
  co_return error;
}

}  // namespace pith
