// Schemes without an election: all elements are sent, unchanged or with fewer bits. Those with
// feedback=1 keep what coding loses; what draws its roundings needs no such memory, since it loses
// nothing on average.
#include <limits>

#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme bf16_scheme;
extern const Scheme fp16_scheme;
extern const Scheme int8_scheme;
extern const Scheme fp8_scheme;
extern const Scheme qsgd_scheme;
extern const Scheme terngrad_scheme;
extern const Scheme natural_scheme;
extern const Scheme sign_scheme;
extern const Scheme signum_scheme;
extern const Scheme efsign_scheme;
extern const Scheme onebit_scheme;
extern const Scheme three_lc_scheme;

namespace {

constexpr std::array bf16_keys{keys::bypass};

constexpr std::array<std::string_view, 3> bits_words = {"2", "4", "8"};
constexpr std::array<std::string_view, 6> block_words = {"128",  "256",  "512",
                                                         "1024", "2048", "4096"};
constexpr std::uint8_t bits_4 = 1;
constexpr std::uint8_t block_256 = 1;
constexpr std::uint8_t block_512 = 2;
constexpr std::uint8_t block_1024 = 3;

std::uint16_t block_of(std::uint8_t word) { return static_cast<std::uint16_t>(128u << word); }

// Not spec.feedback, which is true unless a spec says otherwise.
constexpr std::array fp16_keys{keys::choice<0>("block", block_words),
                               keys::choice<1>("feedback", keys::feedback_words)};
constexpr std::array<std::string_view, 2> map_words = {"linear", "dynamic"};
constexpr std::array int8_keys{keys::choice<0>("block", block_words),
                               keys::choice<1>("feedback", keys::feedback_words),
                               keys::choice<2>("map", map_words)};
constexpr std::array<std::string_view, 2> format_words = {"e4m3", "e5m2"};
constexpr std::array fp8_keys{keys::choice<0>("format", format_words),
                              keys::choice<1>("block", block_words),
                              keys::choice<2>("feedback", keys::feedback_words)};
constexpr std::array qsgd_keys{keys::choice<0>("bits", bits_words),
                               keys::choice<1>("bucket", block_words), keys::seed};
// A block's largest magnitude is at most 64 times the root mean square of 4096 values.
constexpr std::array terngrad_keys{
    keys::choice<0>("bucket", block_words),
    keys::number<0>("clip", 1, 64, "more than 1 and at most 64, which clips nothing"), keys::seed};
constexpr std::array sign_keys{keys::seed};
constexpr double most_momentum = 0.9999;
constexpr std::array signum_keys{
    keys::number<0>("momentum", 0, most_momentum, "more than 0 and at most 0.9999"), keys::seed};
constexpr std::array efsign_keys{keys::choice<0>("block", block_words), keys::seed};
constexpr std::array onebit_keys{keys::choice<0>("block", block_words)};
constexpr double below_one = 1 - std::numeric_limits<double>::epsilon() / 2;
constexpr std::array three_lc_keys{keys::choice<0>("block", block_words),
                                   keys::number<0>("sparsity", below_one, 1.99, "1 to 1.99")};
constexpr std::array natural_keys{keys::choice<0>("block", block_words), keys::seed};

}  // namespace

constinit const Scheme none_scheme{
    .name = "none", .summary = "the sum of everything, as float32", .exchange = "dense"};

const Scheme bf16_scheme{.name = "bf16",
                         .summary = "the sum of everything, in bfloat16",
                         .exchange = "coded",
                         .keys = bf16_keys,
                         .values = DType::bf16,
                         .coding = [](const Spec&) -> Coding {
                           return {.kind = Coding::Kind::bf16, .bits = 16, .block = 64};
                         }};

// The power of two by which a block is multiplied makes float16's range that of float32, so that no
// finite gradient overflows, and float16 gradients travel as they are.
const Scheme fp16_scheme{.name = "fp16",
                         .summary = "everything in float16, with a power of two per block",
                         .exchange = "coded",
                         .keys = fp16_keys,
                         .choices = {block_256},
                         .coding = [](const Spec& spec) -> Coding {
                           return {.kind = Coding::Kind::f16,
                                   .bits = 16,
                                   .block = block_of(spec.choices[0]),
                                   .keeps_rest = spec.choices[1] == 1};
                         }};

// Block-wise, linear or by his map: [Dettmers, "8-bit approximations for parallelism in deep
// learning", ICLR 2016].
const Scheme int8_scheme{.name = "int8",
                         .summary = "everything as signed 8-bit numbers, with a scale per block",
                         .exchange = "coded",
                         .keys = int8_keys,
                         .choices = {block_256},
                         .coding = [](const Spec& spec) -> Coding {
                           const bool dynamic = spec.choices[2] == 1;
                           return {.kind = dynamic ? Coding::Kind::dynamic : Coding::Kind::levels,
                                   .bits = 8,
                                   .block = block_of(spec.choices[0]),
                                   .keeps_rest = spec.choices[1] == 1};
                         }};

// The 8-bit formats of [Micikevicius et al., "FP8 formats for deep learning", 2022].
const Scheme fp8_scheme{.name = "fp8",
                        .summary = "everything as 8-bit floats, with a scale per block",
                        .exchange = "coded",
                        .keys = fp8_keys,
                        .choices = {0, block_256},
                        .coding = [](const Spec& spec) -> Coding {
                          const bool wide = spec.choices[0] == 1;
                          return {.kind = wide ? Coding::Kind::e5m2 : Coding::Kind::e4m3,
                                  .bits = 8,
                                  .block = block_of(spec.choices[1]),
                                  .keeps_rest = spec.choices[2] == 1};
                        }};

// [Alistarh et al., "QSGD", NeurIPS 2017], scaled by each bucket's largest magnitude as in the
// authors' experiments: with 2-norms most values of a bucket would be zero.
const Scheme qsgd_scheme{.name = "qsgd",
                         .summary = "everything in few bits, rounded at random without bias",
                         .exchange = "coded",
                         .keys = qsgd_keys,
                         .choices = {bits_4, block_512},
                         .coding = [](const Spec& spec) -> Coding {
                           return {.kind = Coding::Kind::levels,
                                   .bits = static_cast<std::uint8_t>(2u << spec.choices[0]),
                                   .draws = true,
                                   .block = block_of(spec.choices[1])};
                         }};

// [Wen et al., "TernGrad", NeurIPS 2017], by block where the authors clip and scale by layer. The
// deviation is from zero: from the mean, a block of equal values would be clipped to nothing.
const Scheme terngrad_scheme{
    .name = "terngrad",
    .summary = "everything as -1, 0 or 1 at random, without bias but for clipped outliers",
    .exchange = "coded",
    .keys = terngrad_keys,
    .choices = {block_512},
    .numbers = {2.5},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::levels,
              .bits = 2,
              .draws = true,
              .block = block_of(spec.choices[0]),
              .clip = static_cast<float>(spec.numbers[0])};
    }};

// [Horvath et al., "Natural compression for distributed deep learning", 2019]. Exponents are those
// below the block's largest, so no range is cut off.
const Scheme natural_scheme{
    .name = "natural",
    .summary = "everything as powers of two, rounded at random without bias",
    .exchange = "coded",
    .keys = natural_keys,
    .choices = {block_512},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::powers,
              .bits = 8,
              .draws = true,
              .block = block_of(spec.choices[0])};
    }};

// signSGD with majority vote [Bernstein et al., ICLR 2019]. There zero and ties count as +1, by
// which with an even number of ranks all elements would drift.
const Scheme sign_scheme{
    .name = "sign",
    .summary = "one bit each: the sign that most ranks have, times their number",
    .exchange = "coded",
    .keys = sign_keys,
    .coding = [](const Spec&) -> Coding {
      return {.kind = Coding::Kind::signs, .bits = 1, .block = 1024};
    }};

// [Bernstein et al., "signSGD", ICML 2018, and ICLR 2019]: as sign, with the momentum's signs. It
// is that of PyTorch, m = momentum m + g, whose signs are those of a mean with weights momentum and
// 1 - momentum.
const Scheme signum_scheme{
    .name = "signum",
    .summary = "one bit each: the sign that most ranks' momentum has, times their number",
    .exchange = "coded",
    .keys = signum_keys,
    .numbers = {0.9},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::signs,
              .bits = 1,
              .block = 1024,
              .momentum = static_cast<float>(spec.numbers[0])};
    }};

// [Karimireddy et al., "Error feedback fixes SignSGD", ICML 2019], with a scale per block; the sums
// are coded alike, with an error feedback of their own, as in [Tang et al., "1-bit Adam", ICML
// 2021].
const Scheme efsign_scheme{
    .name = "efsign",
    .summary = "one bit each: signs times the mean magnitude of a block, the rest sent later",
    .exchange = "coded",
    .keys = efsign_keys,
    .choices = {block_1024},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::mean_signs,
              .bits = 1,
              .block = block_of(spec.choices[0]),
              .keeps_rest = true};
    }};

// [Seide et al., "1-bit stochastic gradient descent", Interspeech 2014], which has two means for
// each column of a matrix.
const Scheme onebit_scheme{
    .name = "onebit",
    .summary =
        "one bit each: two means of a block, of values from zero on and below, the rest sent "
        "later",
    .exchange = "coded",
    .keys = onebit_keys,
    .choices = {block_1024},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::two_means,
              .bits = 1,
              .block = block_of(spec.choices[0]),
              .keeps_rest = true};
    }};

// [Lim, Andersen, Kaminsky, "3LC", MLSys 2019], without its third step: bytes of zeros as the
// length of their run, by which the length of a message would depend on the values.
const Scheme three_lc_scheme{
    .name = "3lc",
    .summary = "everything as -1, 0 or 1, five values in a byte, the rest sent later",
    .exchange = "coded",
    .keys = three_lc_keys,
    .choices = {block_1024},
    .numbers = {1},
    .coding = [](const Spec& spec) -> Coding {
      return {.kind = Coding::Kind::ternary,
              .bits = 8,
              .block = block_of(spec.choices[0]),
              .keeps_rest = true,
              .sparsity = static_cast<float>(spec.numbers[0])};
    }};

std::optional<Coding> coding_of(const Spec& spec) {
  const Spec own = spec.form == Form::none ? spec : spec_of(spec.form);
  if (!own.scheme->coding) return std::nullopt;
  return own.scheme->coding(own);
}

}  // namespace pith
