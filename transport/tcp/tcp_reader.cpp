#include "transport/tcp/tcp_reader.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pith {

TcpInbox::Cut* TcpInbox::announce(std::uint32_t message, const Header& header) {
  if (message != next_ || cut_.size() == cut_max) return nullptr;
  cut_.reserve(cut_.size() + 1);
  cut_.push_back({message, &mailbox_.begin(peer_, header), 0});
  ++next_;
  return &cut_.back();
}

TcpInbox::Cut* TcpInbox::find(std::uint32_t message) {
  for (Cut& cut : cut_) {
    if (cut.message == message) return &cut;
  }
  return nullptr;
}

void TcpInbox::finish_cut(Mailbox::Incoming& incoming) {
  std::erase_if(cut_, [&](const Cut& cut) { return cut.incoming == &incoming; });
  mailbox_.finish(incoming);
}

Mailbox::Incoming& TcpInbox::begin_whole(const Header& header) {
  whole_ = &mailbox_.begin(peer_, header);
  return *whole_;
}

void TcpInbox::finish_whole() { mailbox_.finish(*std::exchange(whole_, nullptr)); }

void TcpInbox::abandon(const Error& error) {
  for (const Cut& cut : cut_) mailbox_.abandon(*cut.incoming, error);
  cut_.clear();
  if (whole_) mailbox_.abandon(*std::exchange(whole_, nullptr), error);
}

TcpReader::TcpReader(TcpInbox& inbox, int stream, std::size_t buffer_bytes)
    : inbox_(inbox),
      stream_(stream),
      capacity_(std::max(buffer_bytes, sizeof(MessageOpening) + wait_bytes)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(capacity_)) {}

std::span<const iovec> TcpReader::targets() {
  if (stalled_ || goodbye_) return {};
  if (body_left_ != 0 && !body_->data) {
    targets_[0] = {buffer_.get(), std::min(capacity_, body_left_)};
    return {targets_.data(), 1};
  }
  if (body_left_ != 0) {
    targets_[0] = {body_->data + body_offset_, body_left_};
    targets_[1] = {buffer_.get(), std::min(capacity_, tail_bytes)};
    return targets_;
  }
  if (begin_ != 0) {
    // At most the beginning of one small frame is left.
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  targets_[0] = {buffer_.get() + end_, capacity_ - end_};
  return {targets_.data(), 1};
}

const char* TcpReader::arrived(std::size_t bytes) {
  if (body_left_ != 0) {
    const std::size_t direct = std::min(bytes, body_left_);
    body_moved(direct);
    bytes -= direct;
  }
  end_ += bytes;
  return bytes != 0 ? parse() : nullptr;
}

const char* TcpReader::resume() { return stalled_ ? parse() : nullptr; }

const char* TcpReader::parse() {
  stalled_ = true;  // where memory runs out, the rest is parsed later
  Step step = Step::again;
  while (step == Step::again && body_left_ == 0) {
    if (goodbye_ && begin_ != end_) return "bytes after a goodbye";
    if (end_ - begin_ < sizeof(Frame)) break;
    Frame frame;
    std::memcpy(&frame, buffer_.get() + begin_, sizeof frame);
    if (const char* fault = take_frame(frame, step)) return fault;
  }
  if (begin_ == end_) begin_ = end_ = 0;
  stalled_ = step == Step::wait;
  return nullptr;
}

const char* TcpReader::take_frame(const Frame& frame, Step& step) {
  if (const char* fault = fault_of(frame)) return fault;
  if (frame.type == FrameType::piece) return take_piece(frame, step);
  if (frame.type == FrameType::goodbye) {
    begin_ += sizeof frame;
    goodbye_ = true;
    return nullptr;
  }
  if (!inbox_.may_open(stream_)) return "a message on a stream for pieces";
  if (inbox_.opening_stream() != stream_) {
    step = Step::wait;
    return nullptr;
  }
  return frame.type == FrameType::move ? take_move(frame) : take_opening(step);
}

const char* TcpReader::take_move(const Frame& frame) {
  const auto stream = static_cast<int>(frame.message);
  if (stream < 0 || !inbox_.may_open(stream)) return "a move to a stream for pieces";
  begin_ += sizeof frame;
  inbox_.open_on(stream);
  return nullptr;
}

const char* TcpReader::take_opening(Step& step) {
  MessageOpening opening;
  if (end_ - begin_ < sizeof opening) {
    step = Step::need_more;
    return nullptr;
  }
  std::memcpy(&opening, buffer_.get() + begin_, sizeof opening);
  if (const char* fault = fault_of(opening)) return fault;
  const std::size_t bytes = opening.frame.bytes;
  if (opening.frame.type == FrameType::large) {
    TcpInbox::Cut* cut = inbox_.announce(opening.frame.message, opening.header);
    if (!cut) return "an announcement out of order";
    begin_ += sizeof opening;
    cut->promised = bytes;
    start_body(*cut->incoming, 0, bytes, true);
    return nullptr;
  }
  const std::size_t here = end_ - begin_ - sizeof opening;
  if (here >= bytes) {
    const std::byte* payload = buffer_.get() + begin_ + sizeof opening;
    inbox_.mailbox().deliver(inbox_.peer(), opening.header, payload, nullptr, 0);
    begin_ += sizeof opening + bytes;
  } else if (bytes <= wait_bytes) {
    step = Step::need_more;
  } else {
    Mailbox::Incoming& whole = inbox_.begin_whole(opening.header);  // may throw
    begin_ += sizeof opening;
    start_body(whole, 0, bytes, false);
  }
  return nullptr;
}

const char* TcpReader::take_piece(const Frame& frame, Step& step) {
  TcpInbox::Cut* cut = inbox_.find(frame.message);
  if (!cut) {
    const bool may_come = inbox_.ahead(frame.message) && inbox_.opening_stream() != stream_;
    if (!may_come) return "a piece of an unknown message";
    step = Step::wait;
    return nullptr;
  }
  const std::size_t length = cut->incoming->header.length;
  if (frame.offset > length || frame.bytes > length - frame.offset ||
      frame.bytes > length - cut->promised) {
    return "a piece outside its message";
  }
  begin_ += sizeof frame;
  cut->promised += frame.bytes;
  start_body(*cut->incoming, frame.offset, frame.bytes, true);
  return nullptr;
}

void TcpReader::start_body(Mailbox::Incoming& incoming, std::size_t offset, std::size_t bytes,
                           bool cut) {
  body_ = &incoming;
  body_offset_ = offset;
  body_left_ = bytes;
  body_cut_ = cut;
  const std::size_t here = std::min(bytes, end_ - begin_);
  if (here == 0) return;
  if (incoming.data) std::memcpy(incoming.data + offset, buffer_.get() + begin_, here);
  begin_ += here;
  body_moved(here);
}

void TcpReader::body_moved(std::size_t bytes) {
  body_offset_ += bytes;
  body_left_ -= bytes;
  body_->arrived += bytes;
  if (body_left_ != 0) return;
  Mailbox::Incoming& done = *std::exchange(body_, nullptr);
  if (done.arrived != done.header.length) return;
  if (body_cut_) {
    inbox_.finish_cut(done);
  } else {
    inbox_.finish_whole();
  }
}

}  // namespace pith
