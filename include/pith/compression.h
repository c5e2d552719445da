/* Compression: compressed and sparse calls of Pith; a part of pith.h, which includes it.
 * Its conventions hold here, too.
 *
 * The manual, with every scheme and key, is compression.md, beside this folder in the sources and
 * among the documentation where Pith is installed.
 *
 *   acc = send + residual. The elected elements of acc are sent and removed from the residual. recv
 *   is their sum or mean over the ranks, zero elsewhere, with the same bits on every rank.
 *
 * A compressor holds the state of one vector on one rank. Its first call fixes count (at most
 * 2^32 - 1), type (float32, float16 or bfloat16) and communicator. A call on another communicator
 * returns pithInvalidUsage until pithCompressorReset, or until the first communicator is shrunk,
 * revoked or destroyed. All ranks must use the same spec (`name:key=value,...`) and be at the same
 * step. A compressor has one call at a time, also within a group; meanwhile all functions below
 * refuse it, from any thread, with pithInvalidUsage. Of a float16 or bfloat16 vector the rounding
 * of recv is lost, also with feedback. Calls of one group with the same spec and step become one
 * exchange. On device memory a call runs in the order of its stream, and ends for its compressor
 * when the stream has passed it. Streams in capture mode are refused.
 */
#ifndef PITH_COMPRESSION_H
#define PITH_COMPRESSION_H

#include "pith.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pithCompressor* pithCompressor_t;

/* Local. The spec is copied. */
PITH_API pithResult_t pithCompressorCreate(pithCompressor_t* compressor, const char* spec);
/* Accepts NULL. Refused with pithInvalidUsage while a call uses the compressor. Frees the memory
 * that pithCompressorGetAccumulator has lent. */
PITH_API pithResult_t pithCompressorDestroy(pithCompressor_t compressor);
/* Makes it as new: zero residual, step 0, bound to nothing, with nothing stated. Frees the memory
 * that pithCompressorGetAccumulator has lent. */
PITH_API pithResult_t pithCompressorReset(pithCompressor_t compressor);
/* op: pithSum or pithAvg. send NULL: a gradient of zeros, so that elements of the residual alone
 * are elected. recv is dense and may equal send.
 *
 * If any rank's acc has elements that are not finite: with nonfinite=propagate every recv is NaN
 * and nothing is delivered; with drop such elements count as zero. Either way they leave the
 * residual as it was.
 *
 * A call that is refused for its arguments changes nothing, and no call of its group begins. On a
 * stream pithUnhandledCudaError and pithSystemError are such refusals. After any other error the
 * residual holds the old residual plus the gradient: retry with send = NULL. */
PITH_API pithResult_t pithAllReduceCompressed(const void* send, void* recv, size_t count,
                                              pithDataType_t type, pithRedOp_t op,
                                              pithCompressor_t compressor, pithComm_t comm,
                                              pithStream_t stream);
/* The same call with a sparse result: *n pairs of index, in ascending order, and value of `type`.
 * If there are more than `capacity` pairs, the first `capacity` are written, *n is the number of
 * all, and the call returns pithInvalidArgument, except on a stream. The call counts all the same.
 */
PITH_API pithResult_t pithAllReduceCompressedSparse(const void* send, uint64_t* indices,
                                                    void* values, size_t capacity, size_t* n,
                                                    size_t count, pithDataType_t type,
                                                    pithRedOp_t op, pithCompressor_t compressor,
                                                    pithComm_t comm, pithStream_t stream);

/* Sums sparse vectors of `rows` rows with `width` elements each, as gradients of embeddings are:
 * this rank brings n rows, row i at values + i * width with the number indices[i]. Numbers come in
 * any order, and rows of equal number are added. Every rank gets each row that one of them brings,
 * with its number, in ascending order: *sum_n of them, the same bits on every rank. Rows are added
 * in `type`, in the order of the ranks.
 *
 * n may differ between ranks, and be 0; rows (at most 2^32), width, type and op (pithSum or
 * pithAvg: the sum over the number of ranks) must be the same. An index that is not less than rows
 * is pithInvalidArgument on every rank, before rows are sent. If there are more than `capacity`
 * rows, the first `capacity` are written, *sum_n is the number of all, and the call returns
 * pithInvalidArgument; the other ranks get their result all the same.
 *
 * Host memory only; indices are aligned. The call waits for the result, also with blocking = 0, and
 * is refused inside a group: it is made of other calls, two of which count. A rank sends its n rows
 * and, to every other rank, those sums that it owns: (N - 1) / N of n and of *sum_n. */
PITH_API pithResult_t pithAllReduceSparse(const uint64_t* indices, const void* values, size_t n,
                                          uint64_t* sum_indices, void* sum_values, size_t capacity,
                                          size_t* sum_n, uint64_t rows, size_t width,
                                          pithDataType_t type, pithRedOp_t op, pithComm_t comm);

/* AllGather, ReduceScatter, Broadcast and AlltoAll whose messages have fewer bits. Arguments,
 * groups, streams, captures and the in-place forms are those of the plain calls, except: type is
 * float32, float16 or bfloat16, and op pithSum or pithAvg. As in ZeRO++ [G. Wang et al., 2023].
 *
 * Every value is coded once, by the rank that sends it, and every rank gets the decoded one: the
 * sender, too, so that all results have the same bits. What a rank sends to itself is coded like
 * the rest. ReduceScatter adds the decoded values in rank order in float32, and rounds once, to
 * `type`. The compressor's spec says how values are coded, and must be the same on all ranks: bf16,
 * fp16, int8, fp8, qsgd, terngrad or natural, without feedback=1; else pithInvalidArgument. In a
 * block with an element that is not finite all are NaN (bf16: only that element is as it was).
 * qsgd, terngrad and natural draw by seed, rank and the number of the call, so that a repeated run
 * gets the same bits.
 *
 * Nothing is kept between calls: these calls read the spec and change nothing else of the
 * compressor, neither residual nor step nor statistics, and count, type and communicator of its
 * other calls do not matter. One compressor serves any number of them at once, and may be destroyed
 * as soon as a call has returned; only while one of pithAllReduceCompressed uses it are they
 * refused. */
PITH_API pithResult_t pithAllGatherCompressed(const void* send, void* recv, size_t sendcount,
                                              pithDataType_t type, pithCompressor_t compressor,
                                              pithComm_t comm, pithStream_t stream);
PITH_API pithResult_t pithReduceScatterCompressed(const void* send, void* recv, size_t recvcount,
                                                  pithDataType_t type, pithRedOp_t op,
                                                  pithCompressor_t compressor, pithComm_t comm,
                                                  pithStream_t stream);
PITH_API pithResult_t pithBroadcastCompressed(const void* send, void* recv, size_t count,
                                              pithDataType_t type, int root,
                                              pithCompressor_t compressor, pithComm_t comm,
                                              pithStream_t stream);
PITH_API pithResult_t pithAlltoAllCompressed(const void* send, void* recv, size_t count,
                                             pithDataType_t type, pithCompressor_t compressor,
                                             pithComm_t comm, pithStream_t stream);

/* Statistics of this rank's last call. Set `size` to sizeof(pithCompressorStats_t) first. */
typedef struct {
  size_t size;
  uint64_t calls;          /* bypassed ones included */
  uint64_t count;          /* elements of the vector */
  double density_target;   /* that of the spec; density=auto: of the last call, 1 if all was sent;
                            * dgc with a warm-up: of the next call */
  double density;          /* selected_union / count */
  double threshold;        /* smallest magnitude elected here; ExDyna: the common threshold */
  uint64_t selected_local; /* elements this rank elected; 0 where another is the leader */
  uint64_t selected_union; /* that any rank sent, each once; of spardl, ok-topk, gtopk: kept; of
                            * choco: selected_local */
  int leader;              /* -1: there is none */
  int bypassed;            /* 1: the call was dense */
  /* Squared norm of what this rank sent / that of acc; 1 where nobody elects, and for 0/0. More
   * than 1 where elements are sent enlarged, as by wangni. */
  double gain;
  double residual_norm;
  double imbalance; /* N max k_i / sum k_i */
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t nonfinite;      /* elements of this rank's acc that were not finite */
  double select_seconds;   /* adding gradients, electing, taking values */
  double exchange_seconds; /* the rest of the call, writing its result included */
  double total_seconds;
  char algorithm[32];
  /* What the call was expected to take, on all ranks the same: by numbers fitted to the vector's
   * earlier calls (density=auto, bypass=auto), else by nominal ones. 0: not known, or one rank. */
  double predicted_seconds;
} pithCompressorStats_t;
PITH_API pithResult_t pithCompressorGetStats(pithCompressor_t compressor,
                                             pithCompressorStats_t* stats);
/* Copies the residual to `out`. count must be that of the first call; before that call the function
 * returns pithInvalidUsage. With feedback=0 the residual is zero. */
PITH_API pithResult_t pithCompressorGetResidual(pithCompressor_t compressor, float* out,
                                                size_t count);
/* Memory of `count` float32 that is residual and send buffer at once: add the next gradient into it
 * and pass it as send, which saves the call a pass of its own to add the gradient. Fixes the count;
 * type must be pithFloat32. The compressor owns the memory. With N ranks, exdyna and micro read one
 * of its N parts in each call, and each part once in N calls: an element that is not finite is
 * noticed only when its part is read, or when another rank elects its index. The memory stays until
 * the compressor is reset or destroyed; Load and Scale change what is in it. dgc, whose residual
 * takes velocities, clt-k with a filter, and choco, which has no gradients, are refused with
 * pithInvalidArgument. */
PITH_API pithResult_t pithCompressorGetAccumulator(pithCompressor_t compressor, void** accumulator,
                                                   size_t count, pithDataType_t type);
/* States that the vector consists of n matrices of rows[i] x columns[i] elements, one behind
 * another, each row by row; a tensor of more dimensions counts as its first dimension by the
 * others. Schemes of matrices (powersgd and atomo send factors of them, arc-topk elects rows) would
 * else take the vector for one matrix of a shape of their own; others take no notice. Before the
 * first call, the same on all ranks; it may be repeated. pithCompressorReset forgets them. */
PITH_API pithResult_t pithCompressorSetShape(pithCompressor_t compressor, const size_t* rows,
                                             const size_t* columns, size_t n);
/* States the graph of a compressor whose spec is choco:graph=stated; others take no notice. Edge i
 * joins the ranks from[i] and to[i], which tell each other; its direction does not matter. All
 * ranks state the same edges, before the first call, which is refused if some rank cannot be
 * reached from another. Other edges, for instance on a communicator with fewer ranks, take a
 * pithCompressorReset, which forgets these. */
PITH_API pithResult_t pithCompressorSetGraph(pithCompressor_t compressor, const int* from,
                                             const int* to, size_t edges);
/* Multiplies the residual by `factor`, which must be finite and not zero: for a changed loss scale.
 */
PITH_API pithResult_t pithCompressorScale(pithCompressor_t compressor, float factor);
/* Writes the state as bytes. buffer NULL: *bytes is set to their number; else *bytes is the
 * capacity of the buffer on entry and the number of bytes on return. */
PITH_API pithResult_t pithCompressorSave(pithCompressor_t compressor, void* buffer, size_t* bytes);
/* Adds the residual of a saved state of the same spec. Step, threshold and partition become those
 * of the first state loaded, or stay the compressor's own if it has made a call. Bytes that are
 * damaged or of something else return pithInvalidArgument and change nothing. To go on with N' < N
 * ranks, rank r loads the states of ranks r, r + N', ... in this order. With N' > N a new rank has
 * no state to load, so that its step would differ: all make a first call with new compressors and
 * send = NULL, and then those that have a state load it; steps then agree, and schemes begin to
 * adapt anew. */
PITH_API pithResult_t pithCompressorLoad(pithCompressor_t compressor, const void* buffer,
                                         size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
