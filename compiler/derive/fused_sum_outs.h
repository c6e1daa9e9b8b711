#pragma once
// Outs that are sums of what lanes have just computed, and nothing more than that but for what a step's inputs make.
// Follows fused_reductions.
//
//   y[d] = sum[n](C[n]*h'[d,n]) + D[d]*u[d]                     s6; without D*u s4d and s5
//   y[d] = (sum[n](C[n]*h'[d,n]) + D[d]*u[d])*silu(gate[d])     gated, where u is an input
//
// fused_reductions leaves such a sum in memory and a kernel after the stage reads it to add D*u; and a kernel before it
// makes softplus(dt[d]), which the lanes along n would each make anew. Both move a few numbers a step and channel, and
// each took a fifth of the time of s6: of 0.53 ms for (8, 2048, 1024 x 16) on an H100 0.114 before, 0.343 the walk and
// 0.075 after. Here the walk begins with inputs and ends with outs. An out is affine in its sum, g*sum + b: a lane's
// term is g times what it was, and one lane of those of a sum adds b. What takes long and lacks the innermost channels
// alone, which are the sum's, is made by the threads that hold them: a thread has several of them, and makes it once.
//
// It has it: s6, s4d; mamba2, but for its dt, which is one number a head that 64 times 64 lanes share, so that a kernel
// stands before the walk. It lacks it: the mixer of e_mamba_mixer (its D*u has a u that is made before the stage: read
// by lanes, the whole took 1.74 ms in bf16 on an H200, without it 0.847), gla (y[v] = sum[k] runs along outer
// channels), an out of the square of a sum.
#include "compiler/derive/stage_cells.h"
