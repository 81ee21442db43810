#include "textflag.h"

// func productsAVX2(c, a, b *float64, n, k int)
//
// Four rows and eight columns at a time: c in Y0 to Y7, b's columns in Y8 and
// Y9. A product of two operands is exact in float64, so that the fused
// operation rounds as a multiplication and an addition do.
TEXT ·productsAVX2(SB), NOSPLIT, $0-40
	MOVQ c+0(FP), DI
	MOVQ a+8(FP), SI
	MOVQ b+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ k+32(FP), R8
	SHLQ $3, CX // bytes from row to row of b and c
	SHLQ $3, R8 // and of a
	MOVQ $4, R9

rows:
	LEAQ (SI)(R8*1), R12
	LEAQ (SI)(R8*2), R13
	LEAQ (R12)(R8*2), AX
	XORQ R10, R10

columns:
	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	VXORPD Y2, Y2, Y2
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5
	VXORPD Y6, Y6, Y6
	VXORPD Y7, Y7, Y7
	LEAQ   (DX)(R10*1), BX
	XORQ   R11, R11

step:
	VMOVUPD      (BX), Y8
	VMOVUPD      32(BX), Y9
	VBROADCASTSD (SI)(R11*1), Y10
	VBROADCASTSD (R12)(R11*1), Y11
	VBROADCASTSD (R13)(R11*1), Y12
	VBROADCASTSD (AX)(R11*1), Y13
	VFMADD231PD  Y8, Y10, Y0
	VFMADD231PD  Y9, Y10, Y1
	VFMADD231PD  Y8, Y11, Y2
	VFMADD231PD  Y9, Y11, Y3
	VFMADD231PD  Y8, Y12, Y4
	VFMADD231PD  Y9, Y12, Y5
	VFMADD231PD  Y8, Y13, Y6
	VFMADD231PD  Y9, Y13, Y7
	ADDQ         CX, BX
	ADDQ         $8, R11
	CMPQ         R11, R8
	JLT          step

	LEAQ    (DI)(R10*1), BX
	VMOVUPD Y0, (BX)
	VMOVUPD Y1, 32(BX)
	ADDQ    CX, BX
	VMOVUPD Y2, (BX)
	VMOVUPD Y3, 32(BX)
	ADDQ    CX, BX
	VMOVUPD Y4, (BX)
	VMOVUPD Y5, 32(BX)
	ADDQ    CX, BX
	VMOVUPD Y6, (BX)
	VMOVUPD Y7, 32(BX)
	ADDQ    $64, R10
	CMPQ    R10, CX
	JLT     columns

	LEAQ (SI)(R8*4), SI
	LEAQ (DI)(CX*4), DI
	DECQ R9
	JNZ  rows
	VZEROUPPER
	RET
