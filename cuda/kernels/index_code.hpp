// Indices as bytes, in the format that src/kernels/index_code.hpp defines: blocks of 65,536
// elements, each in Elias-Fano coding or as a bitmap.
#pragma once

#include "cuda/kernels/numbers.hpp"
#include "cuda/kernels/ordered_tiles.hpp"

namespace pith::cuda {

struct IndexForm {
  static constexpr std::size_t elements = std::size_t{1} << 16;
  static constexpr std::size_t head_bytes = 4;
  static constexpr unsigned most_low_bits = 16, bitmap = 255;

  PITH_DEVICE static std::size_t low_bytes(std::size_t count, unsigned form) {
    return form == bitmap ? 0 : (count * form + 7) / 8;
  }
  PITH_DEVICE static std::size_t high_bytes(std::size_t count, std::size_t span, unsigned form) {
    return form == bitmap ? (span + 7) / 8 : (count + (span >> form) + 1 + 7) / 8;
  }
  PITH_DEVICE static std::size_t bytes(std::size_t count, std::size_t span, unsigned form) {
    return count == 0 ? 0 : low_bytes(count, form) + high_bytes(count, span, form);
  }
  // The form with the fewest bytes.
  PITH_DEVICE static unsigned best(std::size_t count, std::size_t span) {
    if (count == 0) return 0;
    unsigned low = 0;
    while (span / count >> (low + 1) != 0) ++low;
    return bytes(count, span, low) < (span + 7) / 8 ? low : bitmap;
  }
};

struct EncodeArgs {
  const std::uint32_t* indices;
  std::size_t count;
  std::size_t span;
  std::byte* out;
  std::size_t* written;
  TileState* state;
  std::uint64_t tiles;
  std::uint32_t first;
};

struct EncodeIndices {
  using Args = EncodeArgs;
  static constexpr unsigned threads = 256;
  static constexpr unsigned most_words = IndexForm::elements / 32;
  struct Shared {
    std::uint32_t words[most_words + 1];
    std::uint64_t told;
    std::size_t begin, end;
  };

  PITH_DEVICE static void set_bits(std::uint32_t* words, std::size_t bit, std::uint32_t bits,
                                   unsigned count) {
    const auto within = static_cast<unsigned>(bit % 32);
    or_shared(&words[bit / 32], bits << within);
    if (within + count > 32) or_shared(&words[bit / 32 + 1], bits >> (32 - within));
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const std::uint64_t tile = take_tile(block, args.state, shared.told);
    const std::size_t offset = tile * IndexForm::elements;
    const std::size_t span = smaller(IndexForm::elements, args.span - offset);
    block.each([&](unsigned thread) {
      const std::uint64_t from = args.first + offset;
      if (thread == 0) shared.begin = place_of_index(args.indices, args.count, from);
      if (thread == 32) shared.end = place_of_index(args.indices, args.count, from + span);
      for (unsigned i = thread; i <= most_words; i += threads) shared.words[i] = 0;
    });
    block.sync();
    const std::size_t begin = shared.begin;
    const std::size_t count = shared.end - begin;
    const unsigned form = IndexForm::best(count, span);
    const std::size_t bytes = IndexForm::bytes(count, span, form);
    const std::uint64_t before =
        sum_before(block, args.state, tile, IndexForm::head_bytes + bytes, shared.told);
    const std::size_t low_bits = 8 * IndexForm::low_bytes(count, form);
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    block.each([&](unsigned thread) {
      for (std::size_t i = thread; i < count; i += threads) {
        const std::uint32_t at = args.indices[begin + i] - first;
        if (form == IndexForm::bitmap) {
          set_bits(shared.words, at, 1, 1);
          continue;
        }
        if (form > 0) set_bits(shared.words, i * form, at & ((1u << form) - 1), form);
        set_bits(shared.words, low_bits + (at >> form) + i, 1, 1);
      }
    });
    block.sync();
    std::byte* const out = args.out + before;
    block.each([&](unsigned thread) {
      if (thread < IndexForm::head_bytes) {
        const std::uint32_t head = static_cast<std::uint32_t>(count) | form << 24;
        out[thread] = static_cast<std::byte>(head >> (8 * thread));
      }
      for (std::size_t i = thread; i < bytes; i += threads) {
        const std::uint32_t word = shared.words[i / 4] >> (8 * (i % 4));
        out[IndexForm::head_bytes + i] = static_cast<std::byte>(word);
      }
      if (thread == 0 && tile + 1 == args.tiles) {
        *args.written = before + IndexForm::head_bytes + bytes;
      }
    });
  }
};

// Position and kind of a block's code.
struct IndexHead {
  std::uint64_t at;      // byte offset of the payload
  std::uint64_t before;  // number of indices in earlier blocks
  std::uint64_t word;    // count | form << 24
};
struct IndexHeads {
  std::uint64_t valid;
  std::uint64_t count;
  std::uint64_t bytes;
  IndexHead blocks[1];
};
constexpr std::size_t index_heads_bytes(std::size_t blocks) {
  return sizeof(IndexHeads) + blocks * sizeof(IndexHead);
}

// As Decoded of core/sparse_kernel_args.hpp.
struct DecodedIndices {
  bool valid;
  std::uint64_t count;
  std::uint64_t bytes;
};

struct DecodeArgs {
  const std::byte* coded;
  std::size_t bytes;
  std::size_t span;
  std::uint32_t* indices;
  std::size_t capacity;
  DecodedIndices* result;
  IndexHeads* heads;
  TileState* state;
  std::uint64_t blocks;
  std::uint32_t first;
};

// Follows the heads through shared memory, since each only tells where the next one is. One block.
struct FindIndexHeads {
  using Args = DecodeArgs;
  static constexpr unsigned threads = 256;
  static constexpr std::size_t window_bytes = std::size_t{32} << 10;
  struct Shared {
    std::uint8_t window[window_bytes];
    std::uint64_t block, read, found, valid, done;
  };

  // Processes the heads within the window.
  PITH_DEVICE static void walk(const Args& args, std::size_t base, std::size_t length,
                               Shared& shared) {
    while (shared.block < args.blocks) {
      const std::size_t at = shared.read - base;
      if (args.bytes - shared.read < IndexForm::head_bytes) break;
      if (at + IndexForm::head_bytes > length) return;  // it continues in the next window
      std::uint32_t word = 0;
      for (unsigned i = 0; i < IndexForm::head_bytes; ++i) {
        word |= static_cast<std::uint32_t>(shared.window[at + i]) << (8 * i);
      }
      const std::size_t payload = shared.read + IndexForm::head_bytes;
      const std::size_t span =
          smaller(IndexForm::elements, args.span - shared.block * IndexForm::elements);
      const std::size_t count = word & 0xffffffu;
      const unsigned form = word >> 24;
      if (count > span || count > args.capacity - shared.found) break;
      if (form > IndexForm::most_low_bits && form != IndexForm::bitmap) break;
      const std::size_t bytes = IndexForm::bytes(count, span, form);
      if (bytes > args.bytes - payload) break;
      args.heads->blocks[shared.block] = {payload, shared.found, word};
      shared.read = payload + bytes;
      shared.found += count;
      ++shared.block;
    }
    shared.valid = shared.block == args.blocks ? 1 : 0;
    shared.done = 1;
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    block.each([&](unsigned thread) {
      if (thread == 0) shared.block = shared.read = shared.found = shared.valid = shared.done = 0;
    });
    block.sync();
    while (true) {
      const std::size_t base = shared.read;
      const std::size_t length = smaller(window_bytes, args.bytes - base);
      block.each([&](unsigned thread) {
        for (std::size_t i = thread; i < length; i += threads) {
          shared.window[i] = static_cast<std::uint8_t>(args.coded[base + i]);
        }
      });
      block.sync();
      block.each([&](unsigned thread) {
        if (thread == 0) walk(args, base, length, shared);
      });
      block.sync();
      if (shared.done != 0) break;
    }
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      args.heads->valid = shared.valid;
      args.heads->count = shared.found;
      args.heads->bytes = shared.read;
      if (shared.valid == 0 || args.blocks == 0) *args.result = {shared.valid != 0, 0, 0};
    });
  }
};

// Decodes one block's indices per thread block. Never reads past the code or writes past the count.
struct DecodeIndices {
  using Args = DecodeArgs;
  static constexpr unsigned threads = 256;
  // Words of the high part, which in a corrupt block may be twice as long as in a valid one.
  static constexpr unsigned most_words = 2 * IndexForm::elements / 32 + 2;
  static constexpr unsigned own_words = (most_words + threads - 1) / threads;
  struct Shared {
    WarpSums sums;
    std::uint64_t told;
    std::uint32_t bad;
    std::uint32_t words[own_words * threads];
  };

  PITH_DEVICE static std::uint32_t low_part(const std::byte* coded, std::size_t rank,
                                            unsigned form) {
    std::uint32_t bits = 0;
    const std::size_t bit = rank * form;
    const auto within = static_cast<unsigned>(bit % 8);
    // At most 16 bits after at most 7 others.
    for (unsigned i = 0; 8 * i < within + form; ++i) {
      bits |= static_cast<std::uint32_t>(coded[bit / 8 + i]) << (8 * i);
    }
    return bits >> within & ((1u << form) - 1);
  }

  template <class Block>
  PITH_KERNEL static void load(const Block& block, const std::byte* from, std::size_t bytes,
                               Shared& shared) {
    block.each([&](unsigned thread) {
      if (thread == 0) shared.bad = 0;
      for (unsigned w = thread; w < own_words * threads; w += threads) {
        std::uint32_t word = 0;
        for (unsigned i = 0; i < 4; ++i) {
          const std::size_t at = std::size_t{w} * 4 + i;
          if (at < bytes) word |= static_cast<std::uint32_t>(from[at]) << (8 * i);
        }
        shared.words[w] = word;
      }
    });
    block.sync();
  }

  // Returns whether the code is a valid block.
  template <class Block>
  PITH_KERNEL static bool decode(const Block& block, const Args& args, const IndexHead& head,
                                 Shared& shared) {
    const std::size_t offset = block.index() * IndexForm::elements;
    const std::size_t span = smaller(IndexForm::elements, args.span - offset);
    const std::size_t count = head.word & 0xffffffu;
    if (count == 0) return true;
    const auto form = static_cast<unsigned>(head.word >> 24);
    const std::byte* const low = args.coded + head.at;
    load(block, low + IndexForm::low_bytes(count, form), IndexForm::high_bytes(count, span, form),
         shared);
    typename Block::template PerThread<std::uint64_t> ranks;
    block.each([&](unsigned thread) {
      ranks[thread] = 0;
      for (unsigned i = 0; i < own_words; ++i) {
        ranks[thread] += bits_set(shared.words[thread * own_words + i]);
      }
    });
    const bool all_there = block.exclusive_sum(ranks, shared.sums) == count;
    const auto first = static_cast<std::uint32_t>(args.first + offset);
    std::uint32_t* const out = args.indices + head.before;
    block.each([&](unsigned thread) {
      std::uint64_t rank = ranks[thread];
      for (unsigned i = 0; i < own_words; ++i) {
        const std::uint64_t base = (std::uint64_t{thread} * own_words + i) * 32;
        for (std::uint32_t bits = shared.words[base / 32]; bits != 0; bits &= bits - 1, ++rank) {
          if (rank >= count) return;
          std::uint64_t at = base + lowest_bit(bits);
          if (form != IndexForm::bitmap) at = (at - rank) << form | low_part(low, rank, form);
          if (at >= span) or_shared(&shared.bad, 1);
          out[rank] = first + static_cast<std::uint32_t>(at);
        }
      }
    });
    block.sync();
    if (!all_there) return false;
    block.each([&](unsigned thread) {
      for (std::size_t i = thread + 1; i < count; i += threads) {
        if (out[i] <= out[i - 1]) or_shared(&shared.bad, 1);
      }
    });
    block.sync();
    return shared.bad == 0;
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    if (args.heads->valid == 0) return;
    const bool good = decode(block, args, args.heads->blocks[block.index()], shared);
    block.each([&](unsigned thread) {
      if (thread == 0 && !good) add_global(&args.state->bad, 1);
    });
    if (!ends_last(block, args.state, args.blocks, shared.told)) return;
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      const bool valid = load_fresh(&args.state->bad) == 0;
      *args.result = {valid, valid ? args.heads->count : 0, valid ? args.heads->bytes : 0};
    });
  }
};

}  // namespace pith::cuda
